#include "linerate/exec/recorder.hpp"

#include <gmock/gmock.h>

#include <array>

#include "linerate/comm/thread/run_ranks.hpp"

namespace linerate::exec {
namespace {

using testing::ElementsAre;

/// Ready, start and end.
std::array<std::int64_t, 3> times_of(const doc::Event& e) {
  return {e.ready_ns, e.start_ns, e.end_ns};
}

TEST(Recorder, RanksOfOneHostShareTheOrigin) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    const TimeOrigin origin = agree_origin(communicator);
    std::int64_t largest = origin.steady_ns;
    communicator.all_reduce(comm::buffer(largest), comm::Reduce::max, "max")->wait();
    EXPECT_EQ(largest, origin.steady_ns);  // one boot, one steady clock: exactly rank 0's moment
  });
}

TEST(Recorder, TimesCountFromTheOrigin) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    Recorder recorder(communicator, {.steady_ns = 1000, .epoch_ns = 5}, "trained");
    recorder.begin_step(3);
    recorder.add({.kind = doc::TaskKind::forward, .start_ns = 1100, .end_ns = 1250});
    recorder.add_step(3, 1050, 1300, "steady");
    const doc::Timeline timeline = recorder.timeline();
    EXPECT_EQ(timeline.origin_ns, 5);
    EXPECT_THAT(times_of(timeline.events.at(0)), ElementsAre(-1, 100, 250));  // unknown stays so
    EXPECT_EQ(timeline.events.at(0).step, 3);
    EXPECT_EQ(timeline.steps.at(0).start_ns, 50);
  });
}

TEST(Recorder, MergeRenumbersNamesAndParameterSets) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    Recorder recorder(communicator, agree_origin(communicator), "trained");
    // Rank 1 meets the same things in the other order.
    std::vector<std::string> order = {"a", "b"};
    if (communicator.rank() == 1) std::swap(order[0], order[1]);
    for (const std::string& name : order) {
      doc::Event event;
      event.name = recorder.name_id(name);
      event.set = recorder.set_id({name, "shared"});
      event.bytes = name == "a" ? 1 : 2;
      recorder.add(event);
    }
    const doc::Timeline whole = gather_timeline(communicator, recorder.timeline());
    if (communicator.rank() != 0) {
      EXPECT_TRUE(whole.events.empty());
      return;
    }
    ASSERT_EQ(whole.events.size(), 4u);
    EXPECT_THAT(whole.names, ElementsAre("a", "b"));
    EXPECT_EQ(whole.parameter_sets.size(), 2u);
    for (const doc::Event& event : whole.events) {
      const std::string name = event.bytes == 1 ? "a" : "b";
      EXPECT_EQ(whole.names.at(static_cast<std::size_t>(event.name)), name);
      std::vector<std::string> set;
      for (const std::int32_t p : whole.parameter_sets.at(static_cast<std::size_t>(event.set)))
        set.push_back(whole.parameter_names.at(static_cast<std::size_t>(p)));
      EXPECT_THAT(set, testing::UnorderedElementsAre(name, "shared"));
    }
  });
}

/// Moments come 100 ns apart, from `first` on.
struct SteadyMoments : DeviceMoments {
  explicit SteadyMoments(std::int64_t first) : first_ns(first) {}
  std::int64_t now() override { return count++; }
  void compare_clocks() override { ++compared; }
  std::vector<std::int64_t> read() override {
    ++reads;
    std::vector<std::int64_t> times;
    for (std::int64_t i = 0; i < count; ++i) times.push_back(first_ns + 100 * i);
    return times;
  }
  std::int64_t first_ns, count = 0;
  int compared = 0, reads = 0;
};

/// Between these two moments of the recorder.
void add_forward(Recorder& recorder, std::int64_t start, std::int64_t end) {
  recorder.add({.kind = doc::TaskKind::forward, .start_ns = start, .end_ns = end});
}

TEST(Recorder, MomentsOfADeviceBecomeTimesWhenTheTimelineIsAskedFor) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    Recorder recorder(communicator, {.steady_ns = 1000, .epoch_ns = 5}, "trained");
    const auto first = std::make_shared<SteadyMoments>(2000);
    recorder.follow(first);
    recorder.begin_step(3);
    const std::int64_t start = recorder.now(), end = recorder.now();
    add_forward(recorder, start, end);
    recorder.add({.kind = doc::TaskKind::all_reduce,
                  .ready_ns = start,
                  .start_ns = 2050,  // by the host's clock
                  .end_ns = recorder.now()});
    recorder.add_step(3, start, recorder.now(), "steady");
    EXPECT_EQ(first->reads, 0);
    // Another device goes on: moments of the one before keep their times.
    const auto second = std::make_shared<SteadyMoments>(9000);
    recorder.follow(second);
    first->first_ns = 0;
    add_forward(recorder, end, recorder.now());
    for (int again = 0; again < 2; ++again) {
      const doc::Timeline t = recorder.timeline();
      ASSERT_EQ(t.events.size(), 3u);
      EXPECT_THAT(times_of(t.events[0]), ElementsAre(-1, 1000, 1100));
      EXPECT_THAT(times_of(t.events[1]), ElementsAre(1000, 1050, 1200));
      EXPECT_THAT(times_of(t.events[2]), ElementsAre(-1, 1100, 8000));
      EXPECT_EQ(t.events[0].step, 3);
      ASSERT_EQ(t.steps.size(), 1u);
      EXPECT_EQ(t.steps[0].start_ns, 1000);
      EXPECT_EQ(t.steps[0].end_ns, 1300);
      EXPECT_EQ(t.steps[0].variant, "steady");
    }
    recorder.forget();
    EXPECT_TRUE(recorder.timeline().events.empty());
    EXPECT_TRUE(recorder.timeline().steps.empty());
  });
}

TEST(Recorder, TellsTheTimelineWhoseTimesItHas) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    Recorder recorder(communicator, agree_origin(communicator), "trained");
    EXPECT_EQ(recorder.timeline().device, "");
    recorder.follow(std::make_shared<SteadyMoments>(2000), "cuda");
    EXPECT_EQ(recorder.timeline().device, "cuda");
    EXPECT_EQ(merge({recorder.timeline(), recorder.timeline()}).device, "cuda");
    recorder.follow(std::make_shared<SteadyMoments>(9000));  // the processor
    EXPECT_EQ(recorder.timeline().device, "");
  });
}

TEST(Recorder, ADeviceIsAskedForNothingWhileNothingIsKept) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    Recorder recorder(communicator, agree_origin(communicator), "trained");
    const auto device = std::make_shared<SteadyMoments>(2000);
    recorder.keep(false);
    recorder.follow(device);
    EXPECT_GT(recorder.now(), 0);  // the host's clock
    EXPECT_EQ(device->count, 0);
    recorder.keep(false);
    EXPECT_EQ(device->compared, 0);
    recorder.keep(true);
    recorder.keep(true);
    EXPECT_EQ(device->compared, 1);  // when keeping begins
    add_forward(recorder, recorder.now(), recorder.now());
    recorder.keep(false);
    EXPECT_EQ(recorder.timeline().events.size(), 1u);  // what was kept stays
    EXPECT_EQ(device->compared, 1);
  });
}

}  // namespace
}  // namespace linerate::exec
