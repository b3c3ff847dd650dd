// The known networks by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "linerate/core/registry.hpp"
#include "linerate/models/description.hpp"
#include "linerate/models/request.hpp"

namespace linerate::models {

/// What `--input` and `--classes` say; absent: the published network (`default_input`).
struct Options {
  std::optional<Shape> input{};
  std::optional<std::int64_t> classes{};
  Variant variant = Variant::automatic;
};

struct Maker {
  Description (*make)(const Request&);
  const char* default_input;  // as --input says it
  std::int64_t default_classes = 0;
};

/// `linerate list models`; --model and zoo:NAME look up here.
const Registry<Maker>& catalogue();

/// Throws UsageError for an unknown name, or an input that the network cannot take.
Description describe(std::string_view name, const Options& options = {});

}  // namespace linerate::models
