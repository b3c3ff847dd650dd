// One definition of exposed communication: what whatif, compare and explain say of the same
// predicted step. tests/cli/whatif.cli has what report prints.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "advise/advise_jobs.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/whatif/answer.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::advise {
namespace {

/// Every exchange of the registry, alone and with every extra, with options that change its shape.
std::vector<std::string> strategies() {
  std::vector<std::string> all = {"ddp(first=64B, bucket=4KiB)", "ddp(small=last)",
                                  "horovod(timer=clock, cycle=2ms)", "dear(layers=1)",
                                  "dear(bucket=1KiB, wire=fp16)"};
  for (const auto& exchange : plan::exchanges().lines()) {
    all.push_back(exchange.name);
    for (const auto& extra : plan::extras().lines()) {
      const std::string both = exchange.name + "+" + extra.name;
      if (extra.make.extra == plan::Extra::codec)
        all.push_back(both + "(ratio=8, encode=1GB/s, decode=2GB/s)");
      else if (extra.make.extra == plan::Extra::automatic)
        all.push_back(both + "(fp16)");
      else if (extra.make.extra == plan::Extra::curvature)
        all.push_back(both + "(spd, clip=off)");
      else if (!exchange.make.traits.needs_summable || plan::fits_decoupled({extra.name, {}}))
        all.push_back(both);
    }
  }
  return all;
}

doc::Workload uneven() {
  std::vector<std::int64_t> elements;
  for (int i = 0; i < 40; ++i) elements.push_back(1 + 9773 * (i % 13) * (i % 7));
  doc::Workload w = support::workload_of(elements, 3e-4);
  for (std::size_t i = 0; i < 10; ++i)
    w.layers.push_back({fmt::format("layer{}", i), "linear", 5e-4, {}, 0});
  for (int i = 0; i < 10; ++i)
    w.blocks.push_back({.layer = i, .a = 40 + 10 * i, .g = 50, .rows_a = 32, .rows_g = 32});
  // Ready order is backward: the last layer's gradients come first.
  for (std::size_t i = 0; i < w.gradients.size(); ++i) {
    w.gradients[i].layer = 9 - static_cast<int>(i / 4);
    w.gradients[i].rows = 1;
  }
  w.forward_s = 5e-3, w.update_s = 1e-3, w.tail_s = 2e-3;
  return w;
}

struct Setting {
  std::string name;
  doc::Cluster cluster;
};

std::vector<Setting> settings() {
  doc::Cluster plain = support::two_rank_cluster(1e-4, 1e-9);
  plain.codecs.push_back({"fp16", 1e-6, 10e9, 1e-6, 10e9});
  plain.second_order = support::second_order_cost();
  doc::Cluster contended = plain, unequal = plain, slow = support::two_rank_cluster(1e-3, 3e-8);
  slow.codecs = plain.codecs;
  contended.contention = doc::Contention{1.7, 1.4};
  for (int r = 0; r < 40; ++r)
    unequal.rank_speeds.push_back({r, 1 + 0.3 * (r % 3), r == 1 ? 4e-3 : 0});
  return {{"plain", plain}, {"contended", contended}, {"unequal", unequal}, {"slow", slow}};
}

double relative(double a, double b) { return std::abs(a - b) / std::max(1e-300, std::max(a, b)); }

/// Within two nanoseconds, as a step begins and ends at whole ones, or 1e-9 of it.
bool same(double a, double b) { return std::abs(a - b) <= 2e-9 || relative(a, b) <= 1e-9; }

TEST(ExposedCommunication, IsTheSameForWhatifCompareAndExplain) {
  const doc::Workload w = uneven();
  int cases = 0, exposed = 0;
  for (const Setting& setting : settings())
    for (const std::string& strategy : strategies())
      for (const int ranks : {1, 2, 5, 20}) {
        const whatif::Question question{.strategies = {doc::parse_strategy(strategy)},
                                        .ranks = {ranks}};
        const doc::Predictions answer = whatif::ask(w, setting.cluster, question);
        const double of_whatif = answer.predictions.front().exposed_communication_s.value();
        const doc::Timeline t =
            whatif::timeline_of(whatif::plan_one(w, setting.cluster, question), w);
        const auto place = fmt::format("{}, {}, {} ranks", setting.name, strategy, ranks);

        const compare::Comparison c = compare::compare(t, t, {.warm_up = 0});
        EXPECT_TRUE(same(of_whatif, c.exposed.predicted_s.value_or(0)))
            << place << ": " << of_whatif << " " << c.exposed.predicted_s.value_or(0);
        const trace::Breakdown b = trace::break_down(trace::job_of(t));
        // New inverses once in a hundred steps: a step that stands out is told apart from the rest.
        if (b.path.left_out().empty()) {
          EXPECT_TRUE(same(of_whatif, b.in_steps.exposed_s / static_cast<double>(b.steps.size())))
              << place << ": " << of_whatif << " " << b.in_steps.exposed_s;
        } else {
          EXPECT_TRUE(strategy.find("kfac") != strategy.npos) << place;
        }
        for (const trace::Busy& all : {b.whole, b.whole_as_doubles})
          EXPECT_TRUE(same(of_whatif, all.exposed_s / static_cast<double>(b.steps.size())))
              << place << ": " << of_whatif << " " << all.exposed_s;
        double sum = 0;
        for (const trace::StepRow& s : b.steps) sum += s.busy.exposed_s;
        EXPECT_TRUE(same(of_whatif, sum / static_cast<double>(b.steps.size()))) << place;
        // Nothing joins the ranks behind the last broadcast: those with more inverses end later.
        const bool alike = setting.name != "unequal" && strategy.find("kfac") == strategy.npos;
        if (alike) {
          EXPECT_TRUE(same(answer.predictions.front().step_s->value, *c.step.predicted_s))
              << place << ": step " << answer.predictions.front().step_s->value << " "
              << *c.step.predicted_s;
        }
        ++cases, exposed += of_whatif > 0;
      }
  fmt::print("{} predicted steps, {} of them with exposed communication\n", cases, exposed);
  EXPECT_GT(exposed, cases / 2);
}

TEST(ExposedCommunication, AdviseSaysTheSameOfTheStrategyInUse) {
  const doc::Workload w = uneven();
  for (const Setting& setting : settings())
    for (const char* strategy : {"ddp", "dear", "horovod"}) {
      const doc::Prediction of_whatif =
          whatif::ask(w, setting.cluster, {.strategies = {doc::parse_strategy(strategy)}})
              .predictions.front();
      const doc::Candidate used = find(advise(w, setting.cluster, in_use(strategy)), strategy);
      EXPECT_EQ(used.exposed_communication_s, of_whatif.exposed_communication_s)
          << setting.name << ", " << strategy;
      EXPECT_EQ(used.communication_s, of_whatif.communication_s);
    }
}

TEST(ExposedCommunication, APredictedStragglerIsExplainedAsARecordedOne) {
  doc::Workload w = support::workload_at({4e-3}, {4'000'000});
  const whatif::Question question{.ranks = {2}};
  doc::Cluster cluster = support::two_rank_cluster(1e-4, 1e-9);
  const double even_s = whatif::ask(w, cluster, question).predictions.front().step_s->value;
  cluster.rank_speeds = {{.rank = 1, .compute_factor = 1, .delay_s = 0.030}};
  const trace::Breakdown b = trace::break_down(
      trace::job_of(whatif::timeline_of(whatif::plan_one(w, cluster, question), w)));
  // Rank 0 waits 30 ms for rank 1; without that the step is that of two equal ranks.
  EXPECT_EQ(trace::judge(b).finding, trace::Finding::skew_bound);
  EXPECT_NEAR(trace::share_for(b.path.gains, trace::Remedy::no_stragglers).value(),
              0.030 / (even_s + 0.030), 1e-6);
  ASSERT_EQ(b.path.causes.size(), 1u);
  EXPECT_EQ(b.path.causes[0].rank, 1);
  EXPECT_NEAR(b.path.causes[0].per_step_s, 0.030, 1e-8);
}

}  // namespace
}  // namespace linerate::advise
