// Strategies in the words of another framework, and which of them it has.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"
#include "linerate/advise/search_space.hpp"
#include "linerate/doc/advice.hpp"

namespace linerate::advise {

/// As one writes it with PyTorch's DistributedDataParallel: "DDP(model, bucket_cap_mb=50) with
/// fp16_compress_hook". Absent: DDP, its hooks and its options cannot do it.
std::optional<std::string> in_pytorch(const doc::Strategy& strategy);

/// Takes what the framework does not have out of the space, and adds what it has besides; the
/// strategy in use stays. Returns what it took out. Throws UsageError for a strategy of
/// AdviseOptions::more that it does not have.
std::vector<doc::Strategy> restrict_to(Framework framework, const AdviseOptions& options,
                                       SearchSpace& space);

/// Names candidates and texts in the framework's words. A sentence says how much the best of
/// `beyond` would gain, and notes say which of the framework's options no prediction prices.
void put_into_words(Framework framework, Evaluator& evaluator,
                    const std::vector<doc::Strategy>& beyond, const AdviseOptions& options,
                    doc::Advice& advice);

}  // namespace linerate::advise
