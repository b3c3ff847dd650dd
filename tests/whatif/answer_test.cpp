#include "linerate/whatif/answer.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/sim/simulator.hpp"
#include "linerate/whatif/preset_model.hpp"
#include "sim/hand_plan.hpp"
#include "support/message_of.hpp"
#include "support/sample_workloads.hpp"
#include "support/says.hpp"
#include "whatif/forty_layers.hpp"

namespace linerate::whatif {
namespace {

using doc::Content;
using doc::StepPart;
using doc::TaskKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Question question(const std::string& strategy, Preset preset = Preset::none) {
  return {.preset = preset, .strategies = {doc::parse_strategy(strategy)}, .ranks = {4}};
}

doc::Prediction first(const Question& q, const doc::Cluster& c = cluster(10),
                      const doc::Workload& w = workload()) {
  return ask(w, c, q).predictions.front();
}

TEST(PlanOne, ForTrainingHasTheVariantsOfTraining) {
  const Planned trained = plan_one(workload(), cluster(10), question("ddp"), true);
  EXPECT_EQ(plan_one(workload(), cluster(10), question("ddp")).plan.variants.size(), 2u);
  EXPECT_EQ(trained.plan.variants.size(), 4u);
  EXPECT_NE(trained.plan.variant_index("steady-weighted"), -1);
}

TEST(PlanOne, RefusesToTrainWhatCannotBeTrained) {
  const auto plan = [](bool for_training) {
    return plan_one(workload(), cluster(10), question("ddp+codec(ratio=8)"), for_training);
  };
  EXPECT_NO_THROW(plan(false));
  EXPECT_THAT(support::message_of([&] { return plan(true); }),
              HasSubstr("linerate train refuses ddp+codec(ratio=8)"));
}

TEST(PlanOne, PricesCollectivesAndTakesTheWorkloadsWordForTheRest) {
  // Ring on 4 ranks: 6 steps of 10 us and 1.5 x 100 MB at 1.25 GB/s.
  const Planned planned = plan_one(workload(), cluster(10), question("bulk"));
  for (const doc::Task& t : planned.plan.variants.back().tasks)
    EXPECT_NEAR(seconds_of(planned, t),
                doc::is_communication(t.kind) ? 60e-6 + 1.5 * 100e6 / 1.25e9 : t.seconds, 1e-9);
}

TEST(Ask, SaysWhichStrategiesChangeConvergenceWhateverTheRatioBeside) {
  Question q = question("ddp");
  q.strategies.push_back(doc::parse_strategy("ddp(wire=fp16)"));
  q.compression_ratios = {1, 4};
  const doc::Predictions answer = ask(workload(), cluster(10), q);
  std::vector<bool> changes;
  for (const doc::Prediction& p : answer.predictions) changes.push_back(p.changes_convergence);
  EXPECT_THAT(changes, ElementsAre(false, false, true, true));
}

TEST(Ask, TheRatioIsThatOfACompressorToo) {
  Question q = question("ddp+fp16");
  q.strategies.push_back(doc::parse_strategy("ddp+topk(density=0.01)"));
  q.strategies.push_back(doc::parse_strategy("ddp+codec(ratio=8)"));
  const doc::Predictions answer = ask(workload(), cluster(10), q);
  EXPECT_EQ(answer.predictions[0].compression_ratio, 2);
  // 1 % of 625,000 elements of 4 bytes, as an index and a value of 4 bytes each.
  EXPECT_NEAR(answer.predictions[1].compression_ratio, 625'000 * 4 / (6'250 * 8.0), 0.01);
  EXPECT_EQ(answer.predictions[2].compression_ratio, 8);
}

/// A compressor is to the closed formula what a codec of its ratio, form and rates is.
TEST(Ask, AgarwalsModelKnowsCompressors) {
  doc::Cluster c = cluster(1);
  c.codecs = {{"fp16", 1e-3, 1e10, 2e-3, 2e10}, {"topk", 1e-3, 1e9, 2e-3, 2e9}};
  const auto answer_of = [&](const std::string& strategy) {
    return first(question(strategy, Preset::agarwal2021), c);
  };
  // 20 ms of forward, 40 ms of backward, coding of 100 MB, and 2(p-1) alpha + 2(p-1)/p S/2 / BW.
  const double coding = 1e-3 + 100e6 / 1e10 + 2e-3 + 100e6 / 2e10;
  EXPECT_NEAR(answer_of("ddp+fp16").step_s->value, 0.060 + coding + 6 * 10e-6 + 1.5 * 50e6 / kGbit,
              1e-9);
  const doc::Prediction gathered = answer_of("ddp+topk(density=0.01)");
  // Four payloads are decoded; three of 100 MB / ratio arrive: (p-1) alpha + (p-1) m / BW.
  const double four = 1e-3 + 100e6 / 1e9 + 4 * (2e-3 + 100e6 / 2e9);
  EXPECT_NEAR(gathered.step_s->value,
              0.060 + four + 3 * 10e-6 + 3 * 100e6 / gathered.compression_ratio / kGbit, 1e-9);
  EXPECT_TRUE(gathered.encode_budget_s.has_value());
}

/// In text and JSON alike: notes are the answer's.
TEST(Ask, SaysWhatCodingCountsAsInsteadOfCountingItAsFree) {
  using testing::AllOf, testing::AnyOf, testing::Contains;
  const auto answer_to = [](Preset preset, const char* strategy, std::vector<doc::CodecCost> codecs,
                            double ratio = 1) {
    doc::Cluster c = cluster(10);
    c.codecs = std::move(codecs);
    Question q = question(strategy, preset);
    if (ratio > 1) q.compression_ratios = {ratio};
    doc::Workload w = workload();
    for (doc::Gradient& g : w.gradients) g.rows = 1;
    return ask(w, c, q);
  };
  const auto is_free = HasSubstr("taking no time"), is_known = HasSubstr("what coding costs here");
  for (const Preset preset : {Preset::none, Preset::agarwal2021}) {
    for (const char* strategy : {"ddp+powersgd(rank=4)", "ddp+topk", "ddp+terngrad"}) {
      const doc::Predictions answer = answer_to(preset, strategy, {});
      EXPECT_THAT(answer.notes, AllOf(Contains(is_known), Not(Contains(is_free)))) << strategy;
      EXPECT_THAT(doc::to_json(answer), is_known) << strategy;
      EXPECT_THAT(report::to_text(answer), is_known) << strategy;
    }
    EXPECT_THAT(answer_to(preset, "ddp+codec(ratio=8)", {}).notes, Contains(is_free));
    EXPECT_THAT(answer_to(preset, "ddp", {}, 4).notes, Contains(is_free));
    EXPECT_THAT(answer_to(preset, "ddp", {}).notes, Not(Contains(is_free)));
    const doc::Predictions own = answer_to(preset, "ddp+topk", {{"topk", 1e-3, 1e9, 2e-3, 2e9}});
    EXPECT_THAT(own.notes, Not(Contains(AnyOf(is_free, is_known))));
    EXPECT_THAT(answer_to(preset, "ddp+codec(ratio=8, encode=10GB/s, decode=10GB/s)", {}).notes,
                Not(Contains(is_free)));
  }
  EXPECT_THAT(answer_to(Preset::zhang2020, "horovod", {}, 4).notes, Contains(is_free));
  EXPECT_THAT(answer_to(Preset::none, "ddp(wire=fp16)", {}).notes, Contains(is_known));
}

/// A ring of 100 MB on 4 ranks takes 60 us and 1.5 x 100 MB at 1.25 GB/s. Under a hook it shrinks
/// and is not hidden: 60 ms of computation, the casts and all of the exchange follow each other.
TEST(Ask, WhatIsKnownOfAHookLosesTheOverlap) {
  const auto step_of = [&](const char* strategy, double gbit = 10) {
    return first(question(strategy), cluster(gbit)).step_s->value;
  };
  const doc::CodecCost fp16 = plan::price_of({"fp16", {}}, plan::known_codec_costs())->cost;
  const double cast = 5 * fp16.encode_fixed_s + 100e6 / fp16.encode_bytes_per_s;
  // A bucket of one gradient, above 1 MiB, and four of eleven or less.
  const double exchange = 5 * 60e-6 + 1.5 * 50e6 / (10 * kGbit);
  EXPECT_NEAR(step_of("ddp+fp16"), 0.060 + cast + exchange, 1e-6);
  EXPECT_NEAR(step_of("ddp(wire=fp16)"), 0.060 + cast + exchange, 1e-6);
  // Where all of it was hidden the hook only costs.
  EXPECT_GT(step_of("ddp+fp16", 100), step_of("ddp", 100));
}

/// Three sets: the hook stops computation, linerate's codec launches for each tensor, and the
/// paper's V100 takes longer than either. A cost that is not measured widens the interval.
TEST(Ask, WhoseCodecsCountIsAsked) {
  doc::Workload w = workload();
  for (doc::Gradient& g : w.gradients) g.rows = 625;
  doc::Cluster network = cost::nominal_cluster("tcp:10Gbit/s");
  const auto answer_of = [&](std::optional<doc::CodecsOf> whose) {
    Question q = question("ddp+powersgd(rank=4)");
    q.codecs = whose, q.ranks = {4};
    return ask(w, network, q);
  };
  for (const auto& [whose, part] : {std::pair{doc::CodecsOf::hooks, "powerSGD_hook"},
                                    {doc::CodecsOf::linerate, "linerate's codec"},
                                    {doc::CodecsOf::papers, "Agarwal"}}) {
    const doc::Predictions answer = answer_of(whose);
    EXPECT_THAT(answer.notes, says(part));
    const doc::Bounded step_s = *answer.predictions.front().step_s;
    EXPECT_GT(*step_s.high - step_s.value, 0.5 * (step_s.value - 0.060)) << part;
  }
  EXPECT_EQ(answer_of({}).predictions.front().step_s->value,
            answer_of(doc::CodecsOf::hooks).predictions.front().step_s->value);
}

/// Agarwal et al. 2021: PowerSGD of rank 4 takes 45 ms for ResNet-50's 54 matrices.
TEST(Ask, ThePapersModelTakesThePapersCosts) {
  doc::Workload w = workload();
  for (doc::Gradient& g : w.gradients) g.rows = 625;
  const doc::Prediction p =
      first(question("ddp+powersgd(rank=4)", Preset::agarwal2021), cluster(10), w);
  const double tensors = static_cast<double>(w.gradients.size());
  const double passes_s = 11 / 7.2e11;  // a byte
  const double coding = passes_s * 100e6 + tensors * (0.045 - passes_s * 102'228'128) / 54;
  const double exchange = 6 * 10e-6 + 1.5 * 100e6 / p.compression_ratio / (10 * kGbit);
  EXPECT_NEAR(p.step_s->value, 0.060 + coding + exchange, 1e-5);
}

TEST(Ask, AgarwalsModelHalvesWhatTravelsAsHalves) {
  const doc::Prediction whole = first(question("ddp", Preset::agarwal2021), cluster(1)),
                        half = first(question("ddp(wire=fp16)", Preset::agarwal2021), cluster(1));
  // 100 MB on 4 ranks: what is hidden is 75 MiB, what is not the rest; the network sets the pace.
  const double rest = 100e6 - 3 * 25 * (1 << 20);
  const auto step = [&](double share) {
    const double ring = 1.5 / kGbit;
    return 0.020 + std::max(1.07 * 0.040, 3 * (6 * 10e-6 + 25 * (1 << 20) * share * ring)) +
           6 * 10e-6 + rest * share * ring;
  };
  EXPECT_NEAR(whole.step_s->value, step(1), 1e-9);
  EXPECT_NEAR(half.step_s->value, step(0.5), 1e-9);
  EXPECT_LT(*half.required_ratio, *whole.required_ratio);
}

TEST(Ask, AgarwalsRatioIsGivenForBothReadingsOfTheLastBucket) {
  const doc::Prediction p = first(question("ddp", Preset::agarwal2021));
  cost::AgarwalInput in{0.040, 100e6, 25.0 * (1 << 20), 4, {10e-6, 1 / (10 * kGbit), 0}};
  EXPECT_EQ(p.required_ratio, cost::required_ratio(in));
  const doc::Plan ddp = plan::make_plan(workload(), cluster(10), doc::parse_strategy("ddp"), 4);
  for (const doc::Payload& bucket : ddp.variants.back().buckets())
    in.buckets.push_back(4.0 * static_cast<double>(bucket.elements));
  EXPECT_EQ(p.required_ratio_ddp, cost::required_ratio(in));
  EXPECT_NE(p.required_ratio_ddp, p.required_ratio);
}

TEST(Ask, WhatAPresetLeavesOutIsSaid) {
  doc::Cluster rich = cluster(10);
  rich.ranks_per_node = 2;
  rich.node = doc::Link{100 * kGbit, 1e-6};
  rich.contention = doc::Contention{};
  rich.rank_speeds = {{1, 2.0, 0}};
  const auto notes_of = [&](Preset preset, const doc::Cluster& c, const char* strategy) {
    return ask(workload(), c, question(strategy, preset)).notes;
  };
  for (const Preset preset : {Preset::agarwal2021, Preset::zhang2020}) {
    const auto notes = notes_of(preset, rich, "ddp");
    for (const char* what : {"link inside a node", "contention", "slow ranks"})
      EXPECT_THAT(notes, says(std::string(what) + " has no effect under"));
    EXPECT_THAT(notes_of(preset, cluster(10), "ddp"), Not(says("link inside a node")));
  }
  for (const char* what : {"add_cost", "latency"})
    EXPECT_THAT(notes_of(Preset::zhang2020, cluster(10), "ddp"), says(what));
  EXPECT_THAT(notes_of(Preset::none, rich, "ddp"), Not(says("no effect")));
  EXPECT_THAT(notes_of(Preset::agarwal2021, cluster(10), "ddp+codec(ratio=8)"),
              says("on= has no effect"));
}

TEST(Ask, TheModelOfAgarwalIsOfBucketsFilledBySize) {
  EXPECT_THROW(first(question("optimal", Preset::agarwal2021)), UsageError);
  EXPECT_NO_THROW(first(question("ddp(bucket=5MiB)", Preset::agarwal2021)));
}

TEST(Ask, WhatOverlapSlowsIsNotExposedCommunicationToAgarwal) {
  Question q = question("ddp", Preset::agarwal2021);
  q.ranks = {1};
  // 20 ms of forward and 1.07 x 40 ms of backward: nothing is sent.
  const doc::Prediction alone = first(q);
  EXPECT_DOUBLE_EQ(alone.step_s->value, 0.020 + 1.07 * 0.040);
  EXPECT_EQ(alone.exposed_communication_s, 0);
  q.ranks = {4};
  const doc::Prediction four = first(q);
  EXPECT_DOUBLE_EQ(*four.exposed_communication_s, four.step_s->value - alone.step_s->value);
  EXPECT_GT(*four.exposed_communication_s, 0);
}

TEST(ExtrapolationNotes, AtAnotherLatencyThanMeasuredItSaysExtrapolated) {
  const doc::Cluster c = measured(10, 0.1);
  cost::CostOptions asked;
  asked.latency = Seconds{c.network.latency_s + 5e-6};
  EXPECT_THAT(cost::extrapolation_notes(cost::CostModel(c, asked), 4),
              says("Another latency adds its difference to each step"));
  asked.latency = Seconds{c.network.latency_s};
  EXPECT_TRUE(cost::extrapolation_notes(cost::CostModel(c, asked), 4).empty());
}

/// As many layers as gradients, none of whose times is a round number.
doc::Workload uneven(int seed) {
  doc::Workload w = workload();
  const auto layers = static_cast<int>(w.gradients.size());
  double forward_s = 0, backward_s = 0;
  for (int i = 0; i < layers; ++i) {
    doc::Gradient& g = w.gradients[to_index(i)];
    g.layer = layers - 1 - i;
    g.ready_s = backward_s += 1e-3 * (1 + (i * 37 + seed * 11) % 17 / 7.0);
    w.layers.push_back(
        {"l" + std::to_string(i), "linear", 1e-3 * (1 + (i + seed) % 13 / 3.0), {}, 0});
    forward_s += *w.layers.back().forward_s;
  }
  w.forward_s = forward_s, w.backward_s = backward_s, w.update_s = 1e-3 / seed;
  w.step_s.reset();
  return w;
}

// Sums of one step's parts in another order than the Workload's differ in their last digits.
TEST(Question, TheErrorOfT1IsInTheIntervalAndItsOriginInTheNotes) {
  doc::Workload w = workload();
  const doc::Prediction exact = ask(w, measured(10, 0.1), question("ddp")).predictions[0];
  w.step_low_s = 0.056, w.step_high_s = 0.063, w.step_origin = "from two recordings";
  const doc::Predictions answer = ask(w, measured(10, 0.1), question("ddp"));
  const doc::Prediction& p = answer.predictions[0];
  EXPECT_EQ(p.step_s->value, exact.step_s->value);
  EXPECT_NEAR(p.step_s->value - *p.step_s->low,
              std::hypot(exact.step_s->value - *exact.step_s->low, 0.004), 1e-12);
  EXPECT_NEAR(*p.step_s->high - p.step_s->value,
              std::hypot(*exact.step_s->high - exact.step_s->value, 0.003), 1e-12);
  EXPECT_THAT(answer.notes, says("T_1 60.0 ms (56.0 ms to 63.0 ms): from two recordings"));
}

TEST(Question, NoScalingFactorIsAbove1) {
  for (int seed = 1; seed < 50; ++seed)
    for (const char* strategy : {"dear", "ddp", "bulk"}) {
      Question q = question(strategy);
      q.ranks = {1, 4}, q.bandwidths = {BytesPerSecond{1e18}}, q.latency = Seconds{0};
      for (const doc::Prediction& p : ask(uneven(seed), cluster(10), q).predictions)
        EXPECT_LE(*p.scaling_factor, 1) << strategy << ", seed " << seed << ", " << p.ranks;
    }
}

TEST(Question, SaysThatSlowRanksAreCountedIn) {
  doc::Cluster slow = cluster(10);
  slow.rank_speeds = {{.rank = 1, .delay_s = 0.01}, {.rank = 3, .compute_factor = 2}, {.rank = 2}};
  const auto notes = [&](Preset preset, int ranks) {
    Question q = question("ddp", preset);
    q.ranks = {ranks};
    return ask(workload(), slow, q).notes;
  };
  EXPECT_THAT(notes(Preset::none, 4), says("counted in: ranks 1, 3 have other times"));
  EXPECT_THAT(notes(Preset::none, 2), says("counted in: rank 1 has other times"));
  EXPECT_THAT(notes(Preset::zhang2020, 4), Not(says("counted in")));
  slow.rank_speeds.clear();
  EXPECT_THAT(notes(Preset::none, 4), Not(says("counted in")));
}

TEST(Question, ALatencyIsRefusedByAModelWithoutOne) {
  Question q = question("horovod", Preset::zhang2020);
  EXPECT_NO_THROW(first(q));
  q.latency = Seconds{0};
  EXPECT_NO_THROW(first(q));
  q.latency = Seconds{20e-6};
  EXPECT_THAT(support::message_of([&] { return first(q); }), HasSubstr("--latency"));
}

TEST(Question, WhatIsGivenTwiceIsAnsweredOnce) {
  Question q;
  for (const char* s : {"ddp", "bulk", "ddp"}) q.strategies.push_back(doc::parse_strategy(s));
  q.ranks = {4, 2, 4};
  q.bandwidths = {BytesPerSecond{1e9}, BytesPerSecond{1e9}};
  q.compression_ratios = {1, 1};
  std::vector<std::string> asked;
  for (const doc::Prediction& p : ask(workload(), cluster(10), q).predictions)
    asked.push_back(p.strategy + " " + std::to_string(p.ranks));
  EXPECT_THAT(asked, ElementsAre("ddp 4", "ddp 2", "bulk 4", "bulk 2"));
  // One combination is one Plan.
  q.strategies.erase(q.strategies.begin() + 1), q.ranks = {2, 2};
  EXPECT_EQ(plan_one(workload(), cluster(10), q).plan.ranks, 2);
}

// ---- parts of a step ----

doc::Task of_kind(doc::Task task, TaskKind kind) {
  task.kind = kind;
  return task;
}

doc::Task of_payload(doc::Task task, std::int32_t payload) {
  task.subject = doc::Subject::payloads;
  task.first = task.last = payload;
  return task;
}

// One byte a second and no latency, so that a collective of n bytes between two ranks takes n s.
cost::CostModel a_byte_a_second() {
  return cost::CostModel(linerate::support::two_rank_cluster(0, 1));
}

// In brackets when they run.
doc::Plan second_order_step() {
  using support::compute, support::exchange;
  doc::Plan plan = support::empty_plan(2);
  doc::TaskGraph& g = plan.variants.front();
  for (const Content content : {Content::gradients, Content::factors, Content::inverse})
    g.payloads.push_back({.content = content});
  const auto forward = g.add(of_kind(compute(1), TaskKind::forward));           // [0, 1]
  const auto a = g.add(of_kind(compute(2), TaskKind::factor), forward);         // [1, 3]
  const auto backward = g.add(of_kind(compute(4), TaskKind::backward), a);      // [3, 7]
  const auto factor = g.add(of_kind(compute(3), TaskKind::factor), backward);   // [7, 10]
  const auto gradients = g.add(of_payload(exchange(5), 0), backward);           // [7, 12]
  const auto factors = g.add(of_payload(exchange(4), 1), factor);               // [12, 16]
  const auto inverse = g.add(of_kind(compute(6), TaskKind::inverse), factors);  // [16, 22]
  doc::Task send = exchange(2, doc::kWhole, TaskKind::broadcast);
  send.root = 0;
  const auto inverses = g.add(of_payload(send, 2), inverse);  // [22, 24]
  const auto direction =
      g.add(of_kind(compute(1), TaskKind::precondition), gradients, inverses);  // [24, 25]
  g.add(of_kind(compute(1), TaskKind::update), direction);                      // [25, 26]
  return plan;
}

TEST(StepParts, AreExposedTimesThatSumToTheStep) {
  sim::Simulator simulator;
  const doc::Plan plan = second_order_step();
  const cost::CostModel model = a_byte_a_second();
  const double step_s = simulator.step_s(plan, model);
  ASSERT_EQ(step_s, 26);
  const doc::StepParts parts = step_parts(plan, model, step_s, simulator);
  // Forward, backward and update alone: 6. With gradients [5, 10]: 11. With factors, of whose 5 s
  // gradients hide 3: 13. With their all-reduce behind that of gradients: 17. With inverse and
  // preconditioning: 24. With the broadcast: 26.
  EXPECT_THAT(parts, ElementsAre(6, 5, 2, 4, 7, 2));
  EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0.0), step_s);
}

TEST(UpTo, LinksTasksAcrossThoseThatAreLeftOut) {
  const doc::Plan thin = plan::up_to(second_order_step(), StepPart::gradient_communication);
  const doc::TaskGraph& g = thin.variants.front();
  std::vector<TaskKind> kinds;
  for (const doc::Task& task : g.tasks) kinds.push_back(task.kind);
  ASSERT_THAT(kinds, ElementsAre(TaskKind::forward, TaskKind::backward, TaskKind::all_reduce,
                                 TaskKind::update));
  const auto before = [&g](std::size_t task) {
    const auto span = g.predecessors(task);
    return std::vector<std::uint32_t>(span.begin(), span.end());
  };
  EXPECT_THAT(before(1), ElementsAre(0));  // through the factor of the input
  EXPECT_THAT(before(2), ElementsAre(1));
  EXPECT_THAT(before(3), ElementsAre(1, 2));  // through everything, and the gradients
  EXPECT_EQ(g.payloads.size(), 3u);
}

TEST(UpTo, KeepsEdgesIntoTheNextStepAndWithTheLastPartEveryTask) {
  doc::Plan plan = second_order_step();
  EXPECT_EQ(plan::up_to(plan, StepPart::inverse_communication).hash(), plan.hash());
  // The gradients' all-reduce holds the next forward pass; without it backward does.
  plan.variants.front().next_step = {{4, 0, 0}, {4, 3, 0}};
  const doc::Plan with = plan::up_to(plan, StepPart::gradient_communication);
  ASSERT_EQ(with.variants.front().next_step.size(), 1u);  // the factor is gone
  EXPECT_EQ(with.variants.front().next_step[0].from, 2u);
  EXPECT_EQ(with.variants.front().next_step[0].to, 0u);
  const doc::Plan without = plan::up_to(plan, StepPart::forward_backward);
  ASSERT_EQ(without.variants.front().next_step.size(), 1u);
  EXPECT_EQ(without.variants.front().next_step[0].from, 1u);
}

// What is copied or coded for a message belongs to what the message is for.
TEST(UpTo, CopiesGoWithTheirPayload) {
  doc::Plan plan = linerate::support::empty_plan(2);
  doc::TaskGraph& g = plan.variants.front();
  for (const Content content :
       {Content::gradients, Content::factors, Content::inverse, Content::directions})
    g.payloads.push_back({.content = content});
  g.payloads.push_back({.content = Content::encoded, .of = 0});
  g.payloads.push_back({.content = Content::eigen});
  const auto part = [&](TaskKind kind, std::int32_t payload) {
    return plan::part_of(plan, g, of_payload(of_kind({}, kind), payload));
  };
  EXPECT_EQ(part(TaskKind::copy, 0), StepPart::gradient_communication);
  EXPECT_EQ(part(TaskKind::encode, 4), StepPart::gradient_communication);
  EXPECT_EQ(part(TaskKind::copy, 1), StepPart::factor_computation);
  EXPECT_EQ(part(TaskKind::copy, 2), StepPart::inverse_communication);
  EXPECT_EQ(part(TaskKind::copy, 5), StepPart::inverse_communication);
  EXPECT_EQ(part(TaskKind::broadcast, 3), StepPart::inverse_communication);
  EXPECT_EQ(part(TaskKind::all_reduce, 1), StepPart::factor_communication);
}

}  // namespace
}  // namespace linerate::whatif
