// One prediction has one interval, whichever verb gives it: whatif, advise, plan and rehearse over
// the whole registry.
#include <gmock/gmock.h>

#include "agreement/cases.hpp"
#include "linerate/advise/advise.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/verbs/rehearse.hpp"
#include "linerate/whatif/answer.hpp"

namespace linerate {
namespace {

using testing::DoubleNear;

constexpr double kRounding = 1e-9;  // of sums in another order, relative

/// Measured with an error, by two ranks that share a core.
doc::Cluster measured(const support::Setting& setting) {
  doc::Cluster c = support::cluster_of(setting, 2);
  c.cores = 1;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                      Collective::all_gather, Collective::broadcast})
    c.collectives.push_back({.collective = collective,
                             .ranks = 2,
                             .source = {},
                             .segments = {{0, 1 << 30, 1e-4, 1e-9, 0.7, 1.4}},
                             .switches = {},
                             .samples = {}});
  return c;
}

doc::Workload timed(const support::Setting& setting) {
  doc::Workload w = support::with_blocks(setting.workload);
  w.forward_s = w.backward_s / 2;
  w.step_s = 1.6 * w.backward_s, w.step_low_s = 1.55 * w.backward_s,
  w.step_high_s = 2 * w.backward_s;
  return w;
}

std::optional<doc::Bounded> by_whatif(const doc::Workload& w, const doc::Cluster& c,
                                      const doc::Strategy& strategy) {
  whatif::Question question;
  question.strategies = {strategy};
  question.ranks = {2};
  try {
    return whatif::ask(w, c, question).predictions.front().step_s;
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

void expect_same(const doc::Bounded& one, const doc::Bounded& other) {
  const double close = kRounding * other.value;
  EXPECT_NEAR(one.value, other.value, close);
  ASSERT_EQ(one.low.has_value(), other.low.has_value());
  ASSERT_EQ(one.high.has_value(), other.high.has_value());
  EXPECT_NEAR(one.low_or_value(), other.low_or_value(), close);
  EXPECT_NEAR(one.high_or_value(), other.high_or_value(), close);
}

class OnePrediction : public testing::TestWithParam<support::Setting> {};

TEST_P(OnePrediction, AdviseHasTheIntervalsOfWhatif) {
  const doc::Workload w = timed(GetParam());
  const doc::Cluster c = measured(GetParam());
  advise::AdviseOptions options;
  options.ranks = 2;
  options.current = doc::parse_strategy("bulk");
  for (const std::string& text : support::strategies())
    options.more.push_back(doc::parse_strategy(text));
  const doc::Advice advice = advise::advise(w, c, options);
  int compared = 0, with_interval = 0;
  for (const doc::Strategy& strategy : options.more) {
    const std::string text = doc::to_text(strategy);
    SCOPED_TRACE(text);
    const auto found = std::find_if(
        advice.candidates.begin(), advice.candidates.end(),
        [&text](const doc::Candidate& candidate) { return candidate.strategy == text; });
    if (found == advice.candidates.end()) continue;  // written in another way there
    const std::optional<doc::Bounded> step_s = by_whatif(w, c, strategy);
    ASSERT_EQ(found->step_s.has_value(), step_s.has_value());
    if (!step_s) continue;
    expect_same(*found->step_s, *step_s);
    ++compared, with_interval += step_s->has_interval();
  }
  EXPECT_GT(compared, static_cast<int>(options.more.size()) / 2);
  EXPECT_EQ(with_interval, compared);
}

// What a rehearsal's prediction starts from: no contention and no slow ranks. What was not measured
// is priced alike, too.
TEST_P(OnePrediction, PlansAndRehearsalsAreOfTheSameStep) {
  const doc::Workload w = timed(GetParam());
  doc::Cluster c = measured(GetParam());
  c.rank_speeds.clear();
  c.cores.reset();
  doc::Cluster by_links = c;
  by_links.collectives.clear();
  int compared = 0;
  for (const std::string& text : support::strategies()) {
    const doc::Strategy strategy = doc::parse_strategy(text);
    for (const doc::Cluster& cluster : {c, by_links}) {
      SCOPED_TRACE(text);
      const std::optional<doc::Bounded> step_s = by_whatif(w, cluster, strategy);
      if (!step_s) continue;
      whatif::Question question;
      question.strategies = {strategy};
      question.ranks = {2};
      const whatif::Planned planned = whatif::plan_one(w, cluster, question);
      const double close = kRounding * step_s->value;
      EXPECT_THAT(sim::simulate(planned.plan, planned.model).step_s,
                  DoubleNear(step_s->value, close));
      double rehearsed_s = 0;
      comm::run_ranks(2, [&](comm::Communicator& communicator) {
        const verbs::PricedPlan priced = verbs::plan_strategy(communicator, w, cluster, strategy);
        if (communicator.rank() == 0)
          rehearsed_s = sim::simulate(*priced.plan, *priced.model).step_s;
      });
      EXPECT_THAT(rehearsed_s, DoubleNear(step_s->value, close));
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

std::vector<support::Setting> some_settings() {
  std::vector<support::Setting> all = support::settings(), some;
  for (support::Setting& s : all)
    if (s.name == "prime sizes" || s.name == "matrices" || s.name == "unequal ranks")
      some.push_back(std::move(s));
  return some;
}

INSTANTIATE_TEST_SUITE_P(Registry, OnePrediction, testing::ValuesIn(some_settings()),
                         [](const auto& named) { return std::to_string(named.index); });

// A reduce-scatter of 4 MiB takes twice what the all-reduce that holds it does.
TEST(MeasurementsThatOthersContradict, AreNamedOnceByWhatifAndAdvise) {
  const support::Setting setting = support::settings().front();
  doc::Cluster c = measured(setting);
  c.collectives[1].samples = {{1 << 22, 9e-3}};
  c.collectives[1].segments = {{0, 1 << 23, 0, 9e-3 / (1 << 22), 0.9, 1.1}};
  const auto named = testing::HasSubstr("reduce-scatter of 4.19 MB on 2 ranks");
  whatif::Question question;
  question.strategies = {doc::parse_strategy("ddp"), doc::parse_strategy("dear")};
  question.ranks = {2, 4};
  question.bandwidths = {BytesPerSecond{1e9}, BytesPerSecond{2e9}};
  EXPECT_THAT(whatif::ask(timed(setting), c, question).notes, testing::Contains(named).Times(1));
  advise::AdviseOptions options;
  options.ranks = 2;
  EXPECT_THAT(advise::advise(timed(setting), c, options).notes, testing::Contains(named).Times(1));
}

}  // namespace
}  // namespace linerate
