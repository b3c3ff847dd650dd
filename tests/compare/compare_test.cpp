#include "linerate/compare/comparison.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "support/message_of.hpp"

namespace linerate::compare {
namespace {

using doc::TaskKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::int64_t kMs = 1'000'000;

/// Two parameters in one bucket (set 0), or each in its own (sets 1, 2).
doc::Timeline empty_timeline(const char* mode) {
  doc::Timeline t;
  t.mode = mode, t.source = t.mode + ".json", t.ranks = 2;
  t.names = {"conv", "fc"};
  t.parameter_names = {"conv.weight", "fc.weight"};
  t.parameter_sets = {{0, 1}, {0}, {1}};
  return t;
}

doc::Event event(TaskKind kind, int rank, int step, std::int64_t start_ms, std::int64_t end_ms,
                 int set, int name = -1) {
  return {kind, doc::Resource::host, rank, step, name, set, -1, start_ms * kMs, end_ms * kMs, -1};
}

/// A step of `length` ms on both ranks: backward 0..10 ms, all-reduce from 8 to `length`.
void add_step(doc::Timeline& t, int step, std::int64_t length, const char* variant = "steady") {
  const std::int64_t at = step * 1000;
  for (int rank = 0; rank < 2; ++rank) {
    t.steps.push_back({rank, step, at * kMs, (at + length) * kMs, variant});
    t.events.push_back(event(TaskKind::backward, rank, step, at, at + 10, 1, 0));
    t.events.push_back(event(TaskKind::all_reduce, rank, step, at + 8, at + length, 0));
  }
}

class Compare : public testing::Test {
 protected:
  /// Without a warm-up.
  Comparison compared() const { return compare(predicted, measured, {.warm_up = 0}); }
  void add_to_both(int step, std::int64_t length, const char* variant = "steady") {
    for (doc::Timeline* t : {&predicted, &measured}) add_step(*t, step, length, variant);
  }

  doc::Timeline predicted = empty_timeline("predicted"), measured = empty_timeline("trained");
};

TEST_F(Compare, WaitingForALateRankIsNoTransfer) {
  add_to_both(0, 20);
  measured.events.back().start_ns = 15 * kMs;  // rank 1 joins 7 ms late and is done in 5
  EXPECT_NEAR(*compare(predicted, measured).kinds[1].measured_s, 5e-3, 1e-12);
}

TEST_F(Compare, JoinsOnTheParameterSetOrTheNameAndListsWhatHasNoPartner) {
  add_to_both(0, 20);
  for (doc::Event& e : predicted.events)  // a layer that is named without its parameters
    if (e.kind == TaskKind::backward) e.set = -1;
  EXPECT_THAT(compare(predicted, measured).tasks, SizeIs(2));
  // The run sent two buckets, the plan one.
  std::erase_if(measured.events,
                [](const doc::Event& e) { return e.kind == TaskKind::all_reduce; });
  for (const int set : {1, 2})
    measured.events.push_back(event(TaskKind::all_reduce, 1, 0, 8, 14, set));
  const Comparison c = compare(predicted, measured);
  ASSERT_THAT(c.tasks, SizeIs(1));
  EXPECT_EQ(c.tasks[0].kind, "backward");
  ASSERT_THAT(c.only_predicted, SizeIs(1));
  EXPECT_EQ(c.only_predicted[0].what, "conv.weight +1");
  EXPECT_THAT(c.only_measured, SizeIs(2));
}

TEST_F(Compare, TwoExchangesOfOneSetAreTwoPhases) {
  add_to_both(0, 20);
  for (doc::Timeline* t : {&predicted, &measured})
    for (int rank = 0; rank < 2; ++rank)
      t->events.push_back(event(TaskKind::all_reduce, rank, 0, 20, 23, 0));
  const Comparison c = compare(predicted, measured);
  ASSERT_THAT(c.tasks, SizeIs(3));
  EXPECT_EQ(c.tasks[1].phase, 0);
  EXPECT_EQ(c.tasks[2].phase, 1);
  EXPECT_NEAR(*c.tasks[2].measured_s, 3e-3, 1e-12);
}

TEST_F(Compare, PiecesOfAPassAreOneTask) {
  add_to_both(0, 20);
  for (std::size_t i = 0; i < 3; i += 2) {  // a factor is computed from 3 to 6 ms
    measured.events[i].end_ns = 3 * kMs;
    measured.events.push_back(measured.events[i]);
    measured.events.back().start_ns = 6 * kMs, measured.events.back().end_ns = 10 * kMs;
  }
  const Comparison c = compare(predicted, measured);
  ASSERT_THAT(c.tasks, SizeIs(2));
  EXPECT_NEAR(*c.tasks[0].measured_s, 7e-3, 1e-12);
  EXPECT_THAT(c.only_measured, SizeIs(0));
}

TEST_F(Compare, WarmUpIsDroppedAndStated) {
  add_step(predicted, 0, 20);
  add_step(measured, 0, 500, "first-step");
  for (int s = 1; s < 10; ++s) add_step(measured, s, s == 1 ? 90 : 20);
  const Comparison c = compare(predicted, measured);
  EXPECT_EQ(c.dropped_steps, 2);  // of ten: the first-step variant and the slow one after it
  EXPECT_NEAR(*c.step.measured_s, 20e-3, 1e-12);
  // Asked to drop none, the variant that never comes again goes all the same.
  EXPECT_EQ(compared().dropped_steps, 1);
}

/// K-FAC's step with new inverses comes once in a hundred; the step after it differs from those
/// that follow, since something of it is still on its way.
TEST_F(Compare, AStepThatACycleHasOnceCounts) {
  for (const char* phase : {"steady", "steady.dense"}) {
    predicted = empty_timeline("predicted"), measured = empty_timeline("trained");
    const std::string stale = std::string(phase) + ".stale";
    for (int s = 0; s < 10; ++s)
      add_to_both(s, s == 0 ? 110 : s == 1 ? 30 : 20, s == 0 ? phase : stale.c_str());
    const Comparison c = compared();
    EXPECT_EQ(c.dropped_steps, 0);
    EXPECT_NEAR(*c.step.predicted_s, 30e-3, 1e-12);
    EXPECT_NEAR(*c.step.measured_s, 30e-3, 1e-12);
  }
}

TEST_F(Compare, ARunComparedWithItselfHasNoError) {
  // Two slow steps first: dropped on one side alone they would show as an error.
  for (int s = 0; s < 6; ++s) add_step(measured, s, s < 2 ? 90 : 20);
  EXPECT_NEAR(*compare(measured, measured).step.error(), 0, 1e-12);
}

TEST_F(Compare, SaysInWhatTheTwoAreNotOfTheSame) {
  add_step(predicted, 0, 19), add_step(measured, 0, 20);
  const auto notes = [this] { return compare(predicted, measured).notes; };
  EXPECT_THAT(notes(), testing::IsEmpty());
  EXPECT_THAT(compare(measured, predicted).notes, ElementsAre(HasSubstr("swap them")));
  measured.computation_slowed = false;
  EXPECT_THAT(notes(), testing::IsEmpty());  // unknown says nothing
  predicted.computation_slowed = false;
  EXPECT_THAT(notes(), testing::IsEmpty());
  predicted.computation_slowed = true;
  predicted.strategy = "ddp", measured.strategy = "dear";
  predicted.ranks = 16;
  EXPECT_THAT(notes(), ElementsAre("the strategy differs: ddp against dear",
                                   "the rank count differs: 16 against 2",
                                   HasSubstr("slows computation only in the first one")));
}

TEST_F(Compare, VariantsCountByTheirShare) {
  // Three plain steps of 20 ms for one of 60 ms (an inverse update): 30 ms a step, where a plain
  // median says 20.
  for (int s = 0; s < 8; ++s)
    add_to_both(s, s % 4 == 0 ? 60 : 20, s % 4 == 0 ? "inverse" : "plain");
  const Comparison c = compared();
  EXPECT_NEAR(*c.step.measured_s, 30e-3, 1e-12);
  EXPECT_NEAR(*c.step.error(), 0, 1e-12);
}

TEST_F(Compare, NoiseComesFromInterleavedHalvesOfFourStepsOrMore) {
  add_step(predicted, 0, 20);
  // 20, 22, 20, 22 ...: the halves' medians are 20 and 22.
  for (int s = 0; s < 8; ++s) {
    add_step(measured, s, s % 2 == 0 ? 20 : 22);
    EXPECT_EQ(compared().noise_source,
              s < 3 ? std::nullopt : std::optional("halves of the measured run"));
  }
  EXPECT_NEAR(*compared().step.noise, 0.1, 0.01);
  // That of a second run is its difference.
  measured = empty_timeline("trained");
  doc::Timeline again = measured;
  for (int s = 0; s < 4; ++s) add_step(measured, s, 20), add_step(again, s, 21);
  EXPECT_NEAR(*compare(predicted, measured, {.noise = &again}).step.noise, 0.05, 1e-12);
}

TEST_F(Compare, ATimelineWithoutStepsIsRefused) {
  add_step(predicted, 0, 20);
  for (int steps = 0; steps < 8; steps += 7) {
    for (int s = 0; s < steps; ++s) add_step(measured, s, 20);
    EXPECT_THAT(
        support::message_of<InputError>(
            [&] { return compare(predicted, measured, {.warm_up = 100'000}); }),
        HasSubstr(fmt::format("trained.json: no step is left to compare: expected more than "
                              "the 100000 that --warm-up drops, found {}; record",
                              steps)));
  }
}

TEST_F(Compare, KernelsOfAnImportAreTheComputationAndItsLayersTheTasks) {
  // Backward spans 0..10 ms, of which kernels fill 0..8; the all-reduce lasts from 8 to 20: 12 ms
  // of it are exposed, since nothing computes in 8..10. Nobody predicts a kernel.
  measured.mode = "imported";
  add_to_both(0, 20);
  for (int rank = 0; rank < 2; ++rank)
    measured.events.push_back(event(TaskKind::compute, rank, 0, 0, 8, -1));
  const Comparison c = compare(predicted, measured);
  EXPECT_DOUBLE_EQ(*c.exposed.measured_s, 0.012);
  EXPECT_THAT(c.tasks, SizeIs(2));
  EXPECT_THAT(c.only_predicted, SizeIs(0));
  EXPECT_THAT(c.only_measured, SizeIs(0));
}

}  // namespace
}  // namespace linerate::compare
