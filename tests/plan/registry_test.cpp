// What holds for the plans of every strategy there is, and what the registry says of them.
#include "linerate/plan/exchange.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/plan/planner.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Sizes that no rank count divides, some of them together in a bucket of 16 KiB.
doc::Workload odd_workload() {
  doc::Workload w = support::workload_at({1e-3, 2e-3, 4e-3, 7e-3, 8e-3},
                                         {4 * 1009, 4 * 1013, 4 * 4999, 4 * 3, 4 * 7919});
  w.forward_s = 5e-3, w.update_s = 1e-3, w.step_s = 16e-3;
  return w;
}

// Every exchange alone, with a cast and with each kind of codec that it can carry.
std::vector<std::string> strategies() {
  std::vector<std::string> all;
  for (const auto& line : exchanges().lines()) {
    all.push_back(line.name);
    all.push_back(line.name + "(wire=fp16)");
    all.push_back(line.name + "+codec(ratio=7, encode=1GB/s, decode=1GB/s)");
    if (!line.make.traits.needs_summable)
      all.push_back(line.name + "+codec(ratio=7, exchange=gather)");
  }
  all.insert(all.end(), {"dear(bucket=16KiB)", "dear(bucket=16KiB, wire=bf16)",
                         "dear(bucket=16KiB)+codec(ratio=7)", "horovod(timer=clock)"});
  return all;
}

doc::Plan planned(const std::string& strategy, int ranks, const PlanOptions& options = {}) {
  return make_plan(odd_workload(), support::two_rank_cluster(1e-4, 1e-9),
                   doc::parse_strategy(strategy), ranks, options);
}

PlanOptions training(std::int64_t buffer_bytes) {
  PlanOptions options;
  options.housekeeping = Housekeeping{buffer_bytes};
  return options;
}

const doc::Payload& payload_of(const doc::TaskGraph& g, const doc::Task& t) {
  return g.payloads[static_cast<std::size_t>(t.first)];
}

TEST(EveryStrategy, CutsHalvesOfAnExchangeIntoWholeBlocks) {
  for (const std::string& strategy : strategies())
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const doc::Plan plan = planned(strategy, ranks);
      for (const doc::TaskGraph& g : plan.variants)
        for (const doc::Task& t : g.tasks) {
          if (t.kind != doc::TaskKind::reduce_scatter && t.kind != doc::TaskKind::all_gather)
            continue;
          EXPECT_EQ(payload_of(g, t).padded % ranks, 0) << strategy << " on " << ranks;
        }
    }
}

TEST(EveryStrategy, MovesThePayloadItNames) {
  for (const std::string& strategy : strategies())
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const doc::Plan plan = planned(strategy, ranks);
      for (const doc::TaskGraph& g : plan.variants)
        for (const doc::Task& t : g.tasks)
          if (doc::is_communication(t.kind)) {
            EXPECT_EQ(t.bytes, payload_of(g, t).bytes()) << strategy << " on " << ranks;
          }
    }
}

TEST(EveryStrategy, HasEachGradientInExactlyOneBucket) {
  for (const std::string& strategy : strategies())
    for (const doc::TaskGraph& g : planned(strategy, 3).variants) {
      std::vector<std::int32_t> members;
      for (const doc::Payload& b : g.buckets())
        members.insert(members.end(), g.members.begin() + b.begin, g.members.begin() + b.end);
      std::sort(members.begin(), members.end());
      EXPECT_THAT(members, ElementsAre(0, 1, 2, 3, 4)) << strategy;
    }
}

TEST(EveryStrategy, PlansTheFirstStepBeforeTheSteadyOne) {
  for (const std::string& strategy : strategies()) {
    const doc::Plan plan = planned(strategy, 3);
    EXPECT_EQ(plan.variants.front().name, kFirstStep) << strategy;
    EXPECT_EQ(plan.variants.back().name, kSteady) << strategy;
    EXPECT_EQ(plan.variant_of_step(0).name, kFirstStep);
    EXPECT_EQ(plan.variant_of_step(1).name, kSteady);
  }
}

// By its predecessors or by its place in a lane, a task comes after the last backward task.
std::vector<bool> behind_backward(const doc::TaskGraph& g) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < g.tasks.size(); ++i)
    if (g.tasks[i].kind == doc::TaskKind::backward) last = i;
  std::vector<bool> behind(g.tasks.size(), false);
  std::array<bool, doc::kResourceNames.size()> lane{};
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    auto&& in_lane = lane[static_cast<std::size_t>(g.tasks[i].resource)];
    behind[i] = in_lane;
    for (const std::uint32_t p : g.predecessors(i)) behind[i] = behind[i] || p == last || behind[p];
    in_lane = in_lane || behind[i] || i == last;
  }
  return behind;
}

TEST(EveryStrategy, SendsNothingInTheFirstStepBeforeBackwardHasEnded) {
  for (const std::string& strategy : strategies())
    for (const PlanOptions& options : {PlanOptions{}, training(100)}) {
      if (options.housekeeping && !traits_of(doc::parse_strategy(strategy)).runs.train) continue;
      const doc::Plan plan = planned(strategy, 3, options);
      for (const doc::TaskGraph& g : plan.variants) {
        if (!g.name.starts_with(kFirstStep)) continue;
        const std::vector<bool> behind = behind_backward(g);
        for (std::size_t i = 0; i < g.tasks.size(); ++i)
          // The batch's size is known before there is a gradient.
          if (doc::is_communication(g.tasks[i].kind) &&
              payload_of(g, g.tasks[i]).content != doc::Content::samples) {
            EXPECT_TRUE(behind[i]) << strategy << ", " << g.name << ", task " << i;
          }
      }
    }
}

int count(const doc::Plan& plan, const doc::TaskGraph& g, doc::Content content,
          std::string_view operation) {
  int found = 0;
  for (const doc::Task& t : g.tasks)
    found += doc::is_communication(t.kind) && payload_of(g, t).content == content &&
             plan.operation_name(t) == operation;
  return found;
}

TEST(Training, ScalesEachGradientOnceBeforeItIsSent) {
  for (const std::string& strategy : strategies()) {
    const doc::Plan plan = planned(strategy, 3, training(0));
    ASSERT_EQ(plan.variants.size(), 4u);
    for (const doc::TaskGraph& g : plan.variants) {
      std::vector<std::int32_t> scaled;
      for (const doc::Task& t : g.tasks)
        if (plan.operation_name(t) == "scale")
          for (std::int32_t p = t.first; p <= t.last; ++p) scaled.push_back(p);
      std::sort(scaled.begin(), scaled.end());
      EXPECT_THAT(scaled, ElementsAre(0, 1, 2, 3, 4)) << strategy << ", " << g.name;
    }
  }
}

/// Gradients and flags of the payloads that travel as they are, in collectives that sum.
std::int64_t flags_that_ride(const doc::TaskGraph& g) {
  std::int64_t flags = 0;
  for (const doc::Payload& p : g.buckets()) flags += p.flags;
  return flags;
}

bool splits(const doc::TaskGraph& g) {
  return std::any_of(g.tasks.begin(), g.tasks.end(),
                     [](const doc::Task& t) { return t.kind == doc::TaskKind::reduce_scatter; });
}

TEST(Training, FlagsRideWithTheLastBucketWhereValuesAreSummedInOnePiece) {
  for (const std::string& strategy : strategies()) {
    const doc::Plan plan = planned(strategy, 3, training(0));
    const bool alone = strategy.find("codec") != std::string::npos || splits(plan.variants.back());
    for (const doc::TaskGraph& g : plan.variants) {
      const auto gradients = static_cast<std::int64_t>(plan.gradient_names.size());
      EXPECT_EQ(flags_that_ride(g), alone ? 0 : gradients + doc::kStepFlags) << strategy;
      EXPECT_EQ(g.buckets().back().flags, flags_that_ride(g)) << strategy;
      EXPECT_EQ(count(plan, g, doc::Content::flags, "max"), alone ? 1 : 0) << strategy;
    }
  }
}

TEST(Training, WhatASplitStepEndsWithComesBeforeItsFirstGather) {
  int cases = 0;
  for (const std::string& strategy : strategies()) {
    const doc::Plan plan = planned(strategy, 3, training(100));
    for (const doc::TaskGraph& g : plan.variants) {
      if (!splits(g)) continue;
      ++cases;
      bool gathers = false;
      std::vector<bool> needs_gather(g.tasks.size(), false);
      for (std::size_t i = 0; i < g.tasks.size(); ++i) {
        const doc::Task& t = g.tasks[i];
        needs_gather[i] = t.kind == doc::TaskKind::all_gather;
        for (const std::uint32_t p : g.predecessors(i))
          needs_gather[i] = needs_gather[i] || needs_gather[p];
        gathers |= t.kind == doc::TaskKind::all_gather;
        if (doc::is_communication(t.kind) && gathers) {
          EXPECT_EQ(t.kind, doc::TaskKind::all_gather) << strategy << ", " << g.name;
        }
        // The compute lane ends the step: nothing in it waits for a gather.
        if (t.resource == doc::Resource::compute) {
          EXPECT_FALSE(needs_gather[i]) << strategy << ", " << doc::title_of(plan, g, t);
        }
      }
    }
  }
  EXPECT_GE(cases, 8);
}

TEST(Training, SendsNothingButItsBucketsWhereThereAreNoBuffers) {
  for (const std::string& strategy : strategies()) {
    if (!traits_of(doc::parse_strategy(strategy)).runs.train) continue;
    const doc::Plan plan = planned(strategy, 3, training(0));
    for (const doc::TaskGraph& g : plan.variants) {
      if (g.name.ends_with("-weighted")) continue;
      for (const doc::Task& t : g.tasks) {
        if (!doc::is_communication(t.kind)) continue;
        const doc::Content content = payload_of(g, t).content;
        EXPECT_TRUE(content == doc::Content::gradients || content == doc::Content::encoded ||
                    (splits(g) && content == doc::Content::flags))
            << strategy << ", " << g.name;
      }
    }
  }
}

TEST(Training, SendsBuffersWhereThereAreAny) {
  for (const std::string& strategy : strategies())
    for (const std::int64_t buffers : {0, 100}) {
      const doc::Plan plan = planned(strategy, 3, training(buffers));
      for (const doc::TaskGraph& g : plan.variants) {
        EXPECT_EQ(count(plan, g, doc::Content::buffers, "move"), buffers > 0) << strategy;
        for (const doc::Task& t : g.tasks)
          if (t.kind == doc::TaskKind::broadcast) {
            EXPECT_EQ(t.root, 0);
          }
      }
    }
}

TEST(Training, CountsSamplesInWeightedVariantsAlone) {
  for (const std::string& strategy : strategies()) {
    const doc::Plan plan = planned(strategy, 3, training(0));
    for (const doc::TaskGraph& g : plan.variants)
      EXPECT_EQ(count(plan, g, doc::Content::samples, "sum"), g.name.ends_with("-weighted"))
          << strategy << ", " << g.name;
  }
}

TEST(Simulation, PlansGradientsAlone) {
  for (const doc::TaskGraph& g : planned("ddp", 3).variants)
    for (const doc::Payload& p : g.payloads) EXPECT_EQ(p.content, doc::Content::gradients);
}

Traits traits(const char* strategy) { return traits_of(doc::parse_strategy(strategy)); }

TEST(Traits, ConvergenceIsChangedByCodecsAndNarrowWires) {
  EXPECT_FALSE(traits("ddp(bucket=5MiB)").changes_convergence);
  EXPECT_TRUE(traits("ddp(wire=fp16)").changes_convergence);
  EXPECT_FALSE(traits("ddp(wire=fp32)").changes_convergence);
  EXPECT_TRUE(traits("ddp+codec(ratio=8)").changes_convergence);
}

TEST(Traits, OfACodecNeedNoCluster) {
  EXPECT_TRUE(traits("ddp+codec(name=mystery)").changes_convergence);
  EXPECT_THROW(traits("teleport"), UsageError);
}

TEST(Traits, SayWhatCannotTrainAndWhy) {
  EXPECT_TRUE(traits("dear(wire=fp16)").runs.train);
  EXPECT_THAT(traits("dear").why_not_train, IsEmpty());
  EXPECT_FALSE(traits("dear+codec(ratio=8)").runs.train);
  EXPECT_THAT(std::string(traits("dear+codec(ratio=8)").why_not_train),
              HasSubstr("nothing to run"));
  EXPECT_THAT(traits("dear+codec(ratio=8)").runs.names(), ElementsAre("simulate", "rehearse"));
}

TEST(Traits, AreThoseOfThePlanner) {
  const doc::Cluster cluster = support::two_rank_cluster(1e-4, 1e-9);
  for (const std::string& text : strategies()) {
    const doc::Strategy strategy = doc::parse_strategy(text);
    const Traits of_planner = Planner(strategy, cluster).traits(), alone = traits_of(strategy);
    EXPECT_EQ(of_planner.plans_by, alone.plans_by) << text;
    EXPECT_EQ(of_planner.changes_convergence, alone.changes_convergence) << text;
    EXPECT_EQ(of_planner.needs_summable, alone.needs_summable) << text;
    EXPECT_EQ(of_planner.runs.train, alone.runs.train) << text;
  }
}

TEST(Registry, ExtrasAreFoundByTheirComponent) {
  EXPECT_TRUE(is(doc::parse_component("codec(ratio=8)"), Extra::codec));
  EXPECT_FALSE(is(doc::parse_component("ddp"), Extra::codec));
  for (const auto& line : extras().lines())
    EXPECT_TRUE(is(doc::parse_component(line.name), line.make.extra)) << line.name;
  EXPECT_FALSE(is(doc::parse_component("powersgd(rank=4)"), Extra::codec));
}

TEST(Codec, IsToldFromACast) {
  const auto encode_of = [](const char* strategy) {
    const doc::Plan plan = planned(strategy, 2);
    const auto& tasks = plan.variants.back().tasks;
    const auto encode = std::find_if(tasks.begin(), tasks.end(), [](const doc::Task& t) {
      return t.kind == doc::TaskKind::encode;
    });
    return encode != tasks.end() && doc::is_coding(plan, *encode);
  };
  EXPECT_TRUE(encode_of("ddp+codec(ratio=8)"));
  EXPECT_FALSE(encode_of("ddp(wire=fp16)"));
}

}  // namespace
}  // namespace linerate::plan
