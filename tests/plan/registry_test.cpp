// What holds for the plans of every strategy there is, and what the registry says of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/planner.hpp"
#include "plan/planned.hpp"
#include "support/message_of.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using support::payload_of;
using support::training;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

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
  return support::planned(strategy, odd_workload(), support::two_rank_cluster(1e-4, 1e-9), ranks,
                          options);
}

/// Every variant of every strategy's Plan on so many ranks.
template <typename Check>
void for_every_step(const std::vector<int>& ranks, const PlanOptions& options, Check check) {
  for (const std::string& strategy : strategies())
    for (const int n : ranks) {
      const doc::Plan plan = planned(strategy, n, options);
      for (const doc::TaskGraph& g : plan.variants) {
        SCOPED_TRACE(strategy + " on " + std::to_string(n) + ", " + g.name);
        check(plan, g);
      }
    }
}

bool trains(const doc::Plan& plan) {
  return traits_of(doc::parse_strategy(plan.strategy)).runs.train;
}

TEST(EveryStrategy, MovesThePayloadItNamesAndCutsHalvesOfAnExchangeIntoWholeBlocks) {
  for_every_step({1, 2, 3, 4, 5, 6, 7, 8}, {}, [](const doc::Plan& plan, const doc::TaskGraph& g) {
    for (const doc::Task& t : support::collectives_of(g)) {
      EXPECT_EQ(t.bytes, payload_of(g, t).bytes());
      const bool is_half =
          t.kind == doc::TaskKind::reduce_scatter || t.kind == doc::TaskKind::all_gather;
      EXPECT_TRUE(!is_half || payload_of(g, t).padded % plan.ranks == 0);
    }
  });
}

TEST(EveryStrategy, HasEachGradientInExactlyOneBucket) {
  for_every_step({3}, {}, [](const doc::Plan&, const doc::TaskGraph& g) {
    std::vector<std::int32_t> members;
    for (const doc::Payload& b : g.buckets())
      for (const std::int32_t p : members_of(g, b)) members.push_back(p);
    EXPECT_THAT(members, UnorderedElementsAre(0, 1, 2, 3, 4));
  });
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
    auto&& in_lane = lane[to_index(g.tasks[i].resource)];
    behind[i] = in_lane;
    for (const std::uint32_t p : g.predecessors(i)) behind[i] = behind[i] || p == last || behind[p];
    in_lane = in_lane || behind[i] || i == last;
  }
  return behind;
}

TEST(EveryStrategy, SendsNothingInTheFirstStepBeforeBackwardHasEnded) {
  for (const PlanOptions& options : {PlanOptions{}, training()})
    for_every_step({3}, options, [&](const doc::Plan& plan, const doc::TaskGraph& g) {
      if (!g.name.starts_with(kFirstStep) || (options.housekeeping && !trains(plan))) return;
      const std::vector<bool> behind = behind_backward(g);
      for (std::size_t i = 0; i < g.tasks.size(); ++i) {
        // The batch's size is known before there is a gradient.
        const bool sends = doc::is_communication(g.tasks[i].kind) &&
                           payload_of(g, g.tasks[i]).content != doc::Content::samples;
        EXPECT_TRUE(!sends || behind[i]) << "task " << i;
      }
    });
}

int count(const doc::Plan& plan, const doc::TaskGraph& g, doc::Content content,
          std::string_view operation) {
  int found = 0;
  for (const doc::Task& t : support::collectives_of(g))
    found += payload_of(g, t).content == content && plan.operation_name(t) == operation;
  return found;
}

TEST(Training, ScalesEachGradientOnceBeforeItIsSent) {
  for_every_step({3}, training(0), [](const doc::Plan& plan, const doc::TaskGraph& g) {
    EXPECT_EQ(plan.variants.size(), 4u);
    std::vector<std::int32_t> scaled;
    for (const doc::Task& t : g.tasks)
      if (plan.operation_name(t) == "scale")
        for (std::int32_t p = t.first; p <= t.last; ++p) scaled.push_back(p);
    EXPECT_THAT(scaled, UnorderedElementsAre(0, 1, 2, 3, 4));
  });
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
  for_every_step({3}, training(0), [](const doc::Plan& plan, const doc::TaskGraph& g) {
    const bool alone = plan.strategy.find("codec") != std::string::npos || splits(g);
    const auto gradients = static_cast<std::int64_t>(plan.gradient_names.size());
    EXPECT_EQ(flags_that_ride(g), alone ? 0 : gradients + doc::kStepFlags);
    EXPECT_EQ(g.buckets().back().flags, flags_that_ride(g));
    EXPECT_EQ(count(plan, g, doc::Content::flags, "max"), alone ? 1 : 0);
  });
}

TEST(Training, WhatASplitStepEndsWithComesBeforeItsFirstGather) {
  int cases = 0;
  for_every_step({3}, training(), [&](const doc::Plan& plan, const doc::TaskGraph& g) {
    if (!splits(g)) return;
    ++cases;
    bool gathers = false;
    std::vector<bool> needs_gather(g.tasks.size(), false);
    for (std::size_t i = 0; i < g.tasks.size(); ++i) {
      const doc::Task& t = g.tasks[i];
      needs_gather[i] = t.kind == doc::TaskKind::all_gather;
      for (const std::uint32_t p : g.predecessors(i))
        needs_gather[i] = needs_gather[i] || needs_gather[p];
      gathers |= t.kind == doc::TaskKind::all_gather;
      const bool follows = doc::is_communication(t.kind) && gathers;
      EXPECT_TRUE(!follows || t.kind == doc::TaskKind::all_gather) << doc::title_of(plan, g, t);
      // The compute lane ends the step: nothing in it waits for a gather.
      EXPECT_FALSE(t.resource == doc::Resource::compute && needs_gather[i])
          << doc::title_of(plan, g, t);
    }
  });
  EXPECT_GE(cases, 8);
}

TEST(Training, SendsNothingButItsBucketsWhereThereAreNoBuffers) {
  for_every_step({3}, training(0), [](const doc::Plan& plan, const doc::TaskGraph& g) {
    if (g.name.ends_with("-weighted") || !trains(plan)) return;
    for (const doc::Task& t : support::collectives_of(g)) {
      const doc::Content content = payload_of(g, t).content;
      EXPECT_TRUE(content == doc::Content::gradients || content == doc::Content::encoded ||
                  (splits(g) && content == doc::Content::flags));
    }
  });
}

TEST(Training, SendsBuffersWhereThereAreAny) {
  for (const std::int64_t buffers : {0, 100})
    for_every_step({3}, training(buffers), [&](const doc::Plan& plan, const doc::TaskGraph& g) {
      EXPECT_EQ(count(plan, g, doc::Content::buffers, "move"), buffers > 0);
      for (const doc::Task& t : g.tasks)
        EXPECT_TRUE(t.kind != doc::TaskKind::broadcast || t.root == 0);
    });
}

TEST(Training, CountsSamplesInWeightedVariantsAlone) {
  for_every_step({3}, training(0), [](const doc::Plan& plan, const doc::TaskGraph& g) {
    EXPECT_EQ(count(plan, g, doc::Content::samples, "sum"), g.name.ends_with("-weighted"));
  });
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

// What a strategy says of a value that an option cannot have.

std::string error_of(const std::string& strategy) {
  return support::message_of([&] { return Planner(doc::parse_strategy(strategy), {}); });
}

/// As the registry's parts name their options themselves, to one that asks for another.
std::vector<std::string> options_of(const std::string& prefix, const std::string& component) {
  const std::string said =
      error_of(prefix + component + "(" + (component == "kfac" ? "spd, " : "") + "zzz=1)");
  const std::size_t known = said.find("Known: ");
  EXPECT_NE(known, std::string::npos) << component << ": " << said;
  std::vector<std::string> options;
  for (const std::string& option : split_outside_parentheses(said.substr(known + 7), ','))
    if (option != "none") options.emplace_back(trim(option));
  return options;
}

TEST(EveryOption, SaysWhatItExpectedAndWhatItFound) {
  int refused = 0;
  const auto check = [&](const std::string& prefix, const std::string& component) {
    for (const std::string& option : options_of(prefix, component))
      for (const char* value : {"-3", "0", "0.37", "17", "4294967297", "1e300", "5GB", "word"}) {
        const std::string first = component == "kfac" ? "spd, " : "";
        const std::string said =
            error_of(fmt::format("{}{}({}{}={})", prefix, component, first, option, value));
        if (said.find("expected") == std::string::npos) continue;
        ++refused;
        EXPECT_THAT(said, HasSubstr("found")) << component << ", " << option << "=" << value;
        EXPECT_THAT(said, HasSubstr(value)) << component << ", " << option;
      }
  };
  for (const auto& line : exchanges().lines()) check("", line.name);
  for (const auto& line : extras().lines())
    if (line.name != kAuto) check("ddp+", line.name);  // whose options are its compressors'
  EXPECT_GT(refused, 300);
}

TEST(EveryOption, OfACompressorIsNamedAmongTheKnown) {
  int gathered = 0;
  for (const auto& line : compress::compressors().lines()) {
    std::vector<std::string> known = options_of("ddp+", line.name);
    std::vector<std::string> taken = compress::options_of(line.name);
    if (error_of("ddp+" + line.name + "(exchange=gather)") == "no error") {
      taken.emplace_back("exchange");
      ++gathered;
    }
    EXPECT_THAT(known, ::testing::UnorderedElementsAreArray(std::set(taken.begin(), taken.end())))
        << line.name;
    for (const std::string& option : known)  // each is taken, with this value or another
      EXPECT_THAT(error_of(fmt::format("ddp+{}({}=word)", line.name, option)),
                  ::testing::Not(HasSubstr("unknown option")));
  }
  EXPECT_GT(gathered, 5);
}

TEST(EveryOption, IsReadWholeBeforeItIsShortened) {
  EXPECT_THAT(error_of("kfac(spd, subsample=4294967297)"), HasSubstr("found 4294967297"));
}

}  // namespace
}  // namespace linerate::plan
