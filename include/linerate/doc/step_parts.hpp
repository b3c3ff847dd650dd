// What a step with K-FAC spends its time on, by exclusion of parts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace linerate::doc {

/// In the order in which parts join a step. The time of a part is a difference: the step with it
/// and all parts before it, less the step with those before it alone. So it is exposed time, and
/// the parts sum to the step. Shi, Zhang & Li 2021 measured their tables so.
enum class StepPart : std::uint8_t {
  forward_backward,        // and whatever else one rank does alone: update, tail
  gradient_communication,  // with coding and copies of gradients, and other collectives
  factor_computation,      // with packing and averaging
  factor_communication,
  inverse_computation,   // with preconditioning and the KL clip
  inverse_communication  // or that of directions, with their copies
};
inline constexpr std::array<std::string_view, 6> kStepPartNames = {
    "forward_backward",     "gradient_communication", "factor_computation",
    "factor_communication", "inverse_computation",    "inverse_communication"};
[[nodiscard]] constexpr std::string_view name_of(StepPart part) {
  return kStepPartNames[static_cast<std::size_t>(part)];
}

/// Seconds by StepPart.
using StepParts = std::array<double, kStepPartNames.size()>;

}  // namespace linerate::doc
