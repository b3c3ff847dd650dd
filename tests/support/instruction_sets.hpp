// Runs a check on each instruction set that Highway compiled and this processor has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace linerate {

/// 0: the set that this machine prefers.
inline void use_instruction_set(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

template <class Check>
void on_each_instruction_set(Check check) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    use_instruction_set(target);
    check();
    use_instruction_set(0);
  }
}

}  // namespace linerate
