// What a strategy does to the number of steps until a target is reached.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/doc/advice.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::advise {

/// steps(strategy) / steps(uncompressed) until the same target, for every strategy that has the
/// key's components and at least its options: codec(ratio=8) holds for ddp+codec(ratio=8,
/// encode=10GB/s).
struct StepsToTarget {
  doc::Strategy key;      // only the exchange when `anywhere`
  bool anywhere = false;  // the key is one component, after any exchange
  doc::Bounded ratio;     // of steps, with its interval
  int missed = 0;         // runs that did not reach the target
  std::string source;     // "given" or the results file
};

/// "codec(ratio=8)=1.1[1.05,1.2]" or "ddp(wire=fp16)=1". Throws UsageError.
[[nodiscard]] StepsToTarget parse_steps_to_target(std::string_view text);

/// The results file, docs/advise.md, or an Evaluation: evaluate/steps_ratio.hpp. What several
/// setups of an Evaluation say of one compressor becomes the median of their ratios, with an
/// interval that holds all of theirs. Throws InputError.
[[nodiscard]] std::vector<StepsToTarget> steps_to_target_from_json(const std::string& text,
                                                                   const std::string& place);

/// Either of the two: a text that ends in .json names a results file.
[[nodiscard]] std::vector<StepsToTarget> read_steps_to_target(const std::string& text);

/// The entry that fits with the most options named, or nullptr.
[[nodiscard]] const StepsToTarget* find_steps(const std::vector<StepsToTarget>& known,
                                              const doc::Strategy& strategy);

/// Keys of entries that fit none of the strategies.
[[nodiscard]] std::vector<std::string> keys_without(const std::vector<StepsToTarget>& known,
                                                    const std::vector<doc::Strategy>& strategies);

}  // namespace linerate::advise
