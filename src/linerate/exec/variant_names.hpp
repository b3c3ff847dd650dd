// The names of a variant's tasks, and the observed task of each gradient and factor: made once for
// a Plan, used in every step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/doc/plan.hpp"
#include "linerate/exec/recorder.hpp"

namespace linerate::exec {

inline constexpr std::uint32_t kNoTask = ~0u;

struct VariantNames {
  /// `recorder` may be null: then there are no ids.
  VariantNames(const doc::Plan& plan, const doc::TaskGraph& graph, Recorder* recorder);

  std::vector<std::string> titles;         // of executed tasks
  std::vector<std::int32_t> names, sets;   // the Recorder's ids; -1: none
  std::vector<std::uint32_t> backward_of;  // [gradients] kNoTask: the variant has none
  std::vector<std::uint32_t> factor_of;    // [factors] the task that computes it; kNoTask: as above
};

}  // namespace linerate::exec
