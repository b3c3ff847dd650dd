// Each wait of a stream is left out, one after the other. A use out of order is then found, or a
// rule says why there is none.
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <limits>
#include <map>
#include <string>

#include "linerate/comm/thread/run_ranks.hpp"
#include "simulated_device/learner.hpp"
#include "simulated_device/simulated_device.hpp"
#include "simulated_device/streamed_backend.hpp"
#include "torch_adapter/group_over_communicator.hpp"

namespace linerate::simulated {
namespace {

using torch_adapter::GroupOverCommunicator;

/// Why nothing was missing without a wait; empty: something was, or nothing is known to say so.
/// `without`: of a job that left it out. A stream always waits for the ends of its collectives, and
/// K-FAC's Plan orders more than memory: before what came is used, the user may wait anyway.
std::string rule_of(const AskedWait& wait, const Asked& without, bool by_curvature) {
  if (wait.is_known) return "all was known";
  if (!without.worked_without) return "a later wait says the same before anything is done";
  const bool is_of_collective = wait.first >= kFirstInner;
  if ((is_of_collective || by_curvature) && without.conflicts.empty() && !without.still_without)
    return "a later wait says the same before what it is for is used";
  return "";
}

/// What was found of the waits of a strategy, on rank 1 of 2.
struct Found {
  std::atomic<std::int64_t> waits = 0;  // of a step
  std::int64_t caught = 0;
  std::map<std::string, std::int64_t> excused;  // by rule
};

/// Leaves out each wait of step(), in a step of its own, which another one follows: what is used
/// again then has been used before. On rank 1, to which rank 0 broadcasts its buffers.
template <typename Step>
void leave_out_each(Communicator& communicator, bool by_curvature, Found& found, Step&& step) {
  const int device = communicator.rank();
  const bool looks = device == 1;
  forget(device);
  step();
  if (looks) found.waits = static_cast<std::int64_t>(asked_of(device).waits.size());
  step();  // ends when all ranks have come to its end
  const std::int64_t waits = found.waits;
  for (std::int64_t number = 0; number < waits; ++number) {
    forget(device);
    if (looks) leave_out_wait(device, number);
    step();
    const auto asked_waits = asked_of(device).waits;
    step();
    if (!looks) continue;
    EXPECT_EQ(asked_waits.size(), static_cast<std::size_t>(waits));
    const AskedWait& wait = asked_waits.at(static_cast<std::size_t>(number));
    const Asked asked = asked_of(device);
    const std::string rule = rule_of(wait, asked, by_curvature);
    found.caught += !asked.conflicts.empty();
    if (!rule.empty()) ++found.excused[rule];
    if (asked.conflicts.empty() == rule.empty())
      ADD_FAILURE() << fmt::format(
          "wait {} of {}, of stream {} for {}, of \"{}\": {}", number, waits, wait.stream,
          wait.first, wait.task,
          rule.empty() ? "nothing was found" : rule + ", but " + asked.conflicts_in_words(1));
  }
}

class LeftOutWaits : public testing::TestWithParam<const char*> {};

TEST_P(LeftOutWaits, AreFoundUnlessARuleExcusesThem) {
  Found found;
  comm::run_ranks(2, [&](Communicator& communicator) {
    const GroupOverCommunicator group(kOfLearners, communicator, {}, &streamed);
    const at::Device mine = device(communicator.rank());
    const c10::DeviceGuard guard(mine);
    forget(mine.index());
    Learner learner(communicator, mine,
                    {.strategy = GetParam(),
                     .measured_steps = 1,
                     .replan_above = std::numeric_limits<double>::infinity(),
                     .device_group = kOfLearners});
    double seed = 0;
    const auto step = [&] {
      learner.parallel->set_batch(kRows + communicator.rank());
      learner.pass(++seed);
      learner.step();
    };
    for (int i = 0; i < 6; ++i) step();  // until the plan stays
    leave_out_each(communicator, preconditions(GetParam()), found, step);
    learner.parallel->settle();
    finish_all(mine.index());
  });
  std::string line = fmt::format("{}: {} waits are found", GetParam(), found.caught);
  for (const auto& [rule, times] : found.excused) line += fmt::format(", {}: {}", rule, times);
  std::printf("%s\n", line.c_str());
  EXPECT_GT(found.caught, 0);
}

INSTANTIATE_TEST_SUITE_P(All, LeftOutWaits,
                         testing::Values("ddp(first=64B, bucket=1KiB)", "dear(layers=1)",
                                         "ddp+powersgd(dense_below=0)",
                                         "ddp+kfac(spd, factors=1, inverses=1)"));

}  // namespace
}  // namespace linerate::simulated
