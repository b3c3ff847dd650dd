#include "linerate/exec/recorder.hpp"

#include <gmock/gmock.h>

#include "linerate/comm/thread/run_ranks.hpp"

namespace linerate::exec {
namespace {

using testing::ElementsAre;

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
    EXPECT_EQ(timeline.events.at(0).start_ns, 100);
    EXPECT_EQ(timeline.events.at(0).end_ns, 250);
    EXPECT_EQ(timeline.events.at(0).ready_ns, -1);  // unknown stays unknown
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

}  // namespace
}  // namespace linerate::exec
