// A Timeline that names its device is read as a device's, one that does not as one of processors.
#include <gmock/gmock.h>

#include <string>

#include "linerate/explain/explanation.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"

namespace linerate::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kUs = 1000;

/// Two ranks compute for 1 ms and add their gradients, which ends this much later on rank 1 in one
/// step of three: in all of them, its clock would be off.
doc::Timeline timeline_of_ranks(const std::string& device, std::int64_t end_later_ns) {
  doc::Timeline t;
  t.mode = "trained";
  t.ranks = 2;
  t.device = device;
  t.names = {"all-reduce"};
  for (std::int32_t rank = 0; rank < 2; ++rank)
    for (std::int32_t step = 0; step < 3; ++step) {
      const std::int64_t begin = 10'000 * kUs * step;
      t.steps.push_back({rank, step, begin, begin + 9000 * kUs, "steady"});
      t.events.push_back({.kind = doc::TaskKind::backward,
                          .resource = doc::Resource::compute,
                          .rank = rank,
                          .step = step,
                          .start_ns = begin,
                          .end_ns = begin + 1000 * kUs});
      t.events.push_back({.kind = doc::TaskKind::all_reduce,
                          .resource = doc::Resource::network,
                          .rank = rank,
                          .step = step,
                          .name = 0,
                          .ready_ns = begin + 1000 * kUs,
                          .start_ns = begin + 1000 * kUs,
                          .end_ns = begin + 3000 * kUs + (step == 1 ? rank * end_later_ns : 0),
                          .bytes = 4096});
    }
  return t;
}

Breakdown broken_down(const std::string& device, std::int64_t end_later_ns) {
  return break_down(job_of(timeline_of_ranks(device, end_later_ns)));
}

/// Threads wake late: on processors the end of a sum may lie 3 ms apart, on devices a tenth of it.
TEST(TimelineOfADevice, IsHeldToItsCollectives) {
  const auto diverge = HasSubstr("collectives end at different times");
  for (const char* processors : {"", "cpu"}) {
    const Breakdown b = broken_down(processors, 500 * kUs);
    EXPECT_TRUE(b.cpu_device);
    EXPECT_THAT(b.notes, Not(Contains(diverge)));
  }
  for (const char* device : {"cuda", "xpu", "something new"}) {
    const Breakdown b = broken_down(device, 500 * kUs);
    EXPECT_FALSE(b.cpu_device) << device;
    EXPECT_THAT(b.notes, Contains(diverge)) << device;
    EXPECT_THAT(broken_down(device, 50 * kUs).notes, Not(Contains(diverge))) << device;
  }
}

TEST(TimelineOfADevice, IsCalledByItsType) {
  const auto text = [](const std::string& device) {
    return explain_text(broken_down(device, 0), {});
  };
  EXPECT_THAT(text(""), HasSubstr("the CPU is the device"));
  EXPECT_THAT(text("cpu"), HasSubstr("the CPU is the device"));
  EXPECT_THAT(text("cuda"), HasSubstr("the device is cuda"));
}

/// What `import --timeline` makes of it says it, too.
TEST(TimelineOfADevice, StaysOneWhenItIsImported) {
  const doc::Timeline back = timeline_of(job_of(timeline_of_ranks("xpu", 0)), "run.json");
  EXPECT_EQ(back.device, "xpu");
  EXPECT_EQ(timeline_of(job_of(timeline_of_ranks("", 0)), "run.json").device, "");
  EXPECT_FALSE(job_of(back).cpu_device);
}

}  // namespace
}  // namespace linerate::trace
