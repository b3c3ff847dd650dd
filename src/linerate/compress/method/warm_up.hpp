// Warm-ups that methods begin with: dense steps, before a codec takes over.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// The option `key`: a number of steps, 0 if it is absent; refuses what is below 0.
std::int64_t read_warm_up(doc::OptionReader& options, std::string_view key = "warmup");

/// One phase, "dense", of so many steps; none for 0.
std::vector<Phase> dense_warm_up(std::int64_t steps);

}  // namespace linerate::compress
