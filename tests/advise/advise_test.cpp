#include "advise/advise_jobs.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/advise/search_space.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/whatif/answer.hpp"

namespace linerate::advise {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const doc::Candidate* codec_of(const doc::Advice& a, doc::Standing standing) {
  for (const doc::Candidate& c : a.candidates)
    if (c.standing == standing && c.strategy.find("+codec") != std::string::npos) return &c;
  return nullptr;
}

TEST(Advise, SaysWhatCodingCountsAsAndWhatIsLeftDense) {
  const AdviseOptions options{
      .more = {doc::parse_strategy("ddp+topk(density=0.01)"), doc::parse_strategy("bulk+topk")}};
  doc::Workload w = workload();
  const auto notes = [&] { return advise(w, cluster(1), options).notes; };
  EXPECT_THAT(notes(), Not(says("as taking no time")));
  for (const char* what : {"topk(density=0.01)", "topk", "wire=fp16"})
    EXPECT_THAT(notes(), testing::Contains(AllOf(testing::AnyOf(HasSubstr(what + std::string(":")),
                                                                HasSubstr(what + std::string(","))),
                                                 HasSubstr("what coding costs here")))
                             .Times(1))
        << what;
  EXPECT_THAT(notes(), Not(says("only f32 is compressed")));
  w.gradients.front().dtype = DType::f16;
  EXPECT_THAT(notes(),
              testing::Contains(HasSubstr("topk: 1 of 40 gradients is f16, and only f32 is "
                                          "compressed"))
                  .Times(1));
  // Ranks that compute on cores are no GPUs: nothing is known of them.
  doc::Cluster cores = cluster(1);
  cores.cores = 4;
  EXPECT_THAT(advise(w, cores, options).notes, says("they count as taking no time"));
}

/// Before the first strategy is parsed.
const bool kHasUnpriced = [] {
  compress::register_compressor(
      {"unpriced", compress::compressors().at("mstopk"), "As mstopk.", "this test"});
  return true;
}();

// At 1 Gbit/s a program's own compressor wins because it counts as a cast.
TEST(Advise, SaysIfTheBestCodecIsPricedByABoundAlone) {
  ASSERT_TRUE(kHasUnpriced);
  AdviseOptions options{.more = {doc::parse_strategy("ddp+unpriced")}};
  const auto about = [](const doc::Advice& a) {
    for (const std::string& note : a.notes)
      if (note.starts_with("Compression may pay")) return note;
    return std::string();
  };
  const doc::Advice unranked = advised(cluster(1), options);
  EXPECT_THAT(find(unranked, "ddp+unpriced").reason,
              HasSubstr("a cast, the least that it can take"));
  EXPECT_THAT(about(unranked),
              AllOf(HasSubstr("The best, ddp+unpriced"), HasSubstr("the least that it can take")));
  options.steps = {parse_steps_to_target("unpriced=1.2")};
  const doc::Advice best = advised(cluster(1), options);
  ASSERT_EQ(best.best, "ddp+unpriced");
  EXPECT_THAT(best.sentence, HasSubstr("only known to take at least as long as a cast"));
  // Its own cost is none.
  doc::Cluster known = cluster(1);
  known.codecs = {{"unpriced", 0, 1e10, 0, 1e10}};
  EXPECT_THAT(advised(known, options).sentence, Not(HasSubstr("the least that it can take")));
}

/// Agarwal et al. 2021 and Zhang et al. 2020, unasked: 100 MB under 60 ms of computation on 4 ranks
/// are 12 ms at 100 Gbit/s, 120 ms at 10 and 1.2 s at 1.
TEST(Advise, SaysWhetherCompressionPays) {
  doc::Workload w = workload();
  for (doc::Gradient& g : w.gradients) g.rows = 625;
  const auto said = [&](double gbit) {
    std::string all;
    for (const std::string& note : advise(w, cluster(gbit), {}).notes) all += note + "\n";
    return all;
  };
  EXPECT_THAT(said(100), HasSubstr("Compression does not pay here. 0 of 8"));
  EXPECT_THAT(said(100), HasSubstr("no compression is needed"));
  EXPECT_THAT(said(1), HasSubstr("Compression may pay here. 8 of 8"));
  // 5 % of 60 ms for the last bucket, of 25 MB or less, which takes up to 30 ms.
  EXPECT_THAT(said(10),
              testing::ContainsRegex(
                  "ddp comes within 5 % of one rank's step with payloads [2-9](\\.[0-9]+)? x"));
}

TEST(Advise, ACodecWithoutStepsToTargetIsNotRankedHoweverFast) {
  // 1 Gbit/s: dense 1.2 s, codec below 0.1 s, and still no ranking by step time.
  const doc::Advice a = advised(cluster(1), with_codec());
  EXPECT_THAT(a.best, Not(HasSubstr("codec")));
  const doc::Candidate* codec = codec_of(a, doc::Standing::unranked);
  ASSERT_NE(codec, nullptr);
  EXPECT_LT(codec->step_s->value, 0.2 * find(a, "ddp").step_s->value);
  EXPECT_FALSE(codec->target_s.has_value());
  EXPECT_THAT(codec->reason, AllOf(HasSubstr("not ranked"), HasSubstr("x the steps of ")));
}

TEST(Advise, OnASlowNetworkACheapCodecWinsOnceItsStepsAreKnownAndFew) {
  const doc::Advice a = advised(cluster(1), with_codec({"codec(ratio=32)=1.5[1.4,1.6]"}));
  EXPECT_EQ(a.verdict, doc::AdviceVerdict::change);
  EXPECT_THAT(a.best, HasSubstr("codec"));
  const doc::Candidate& best = a.candidates.front();
  EXPECT_DOUBLE_EQ(best.target_s->value, 1.5 * best.step_s->value);
  EXPECT_DOUBLE_EQ(*best.target_s->high, 1.6 * best.step_s->value);
  // Of one that takes too many nothing is left.
  EXPECT_THAT(advised(cluster(1), with_codec({"codec=1000"})).best, Not(HasSubstr("codec")));
}

doc::Candidate candidate(double value, double low, double high) {
  doc::Candidate c;
  c.step_s = c.target_s = doc::Bounded{value, low, high};
  return c;
}

TEST(Verdict, OfACandidateAgainstTheOneInUse) {
  using enum doc::AdviceVerdict;
  struct Case {
    const char* claim;
    doc::Candidate current, best;
    double least_gain;
    doc::AdviceVerdict verdict;
  };
  // Of shared costs: whatever the network costs, it costs one of the two less.
  for (const Case& c :
       {Case{"3.8 % to gain; at the high end 2.8 % to lose", candidate(104, 99, 109),
             candidate(100, 90, 112), 0.02, inconclusive},
        Case{"the best against itself, whatever the least gain", candidate(100, 50, 200),
             candidate(100, 50, 200), 0, do_nothing},
        Case{"overlapping intervals of shared costs", candidate(168, 139, 331),
             candidate(146, 120, 273), 0.02, change},
        Case{"intervals apart", candidate(120, 114, 126), candidate(100, 95, 105), 0.02, change},
        Case{"less than the least gain", candidate(101, 101, 101), candidate(100, 100, 100), 0.02,
             do_nothing}})
    EXPECT_EQ(verdict_of(c.current, c.best, c.least_gain), c.verdict) << c.claim;
}

TEST(Verdict, ComparesIntervalsOfSharedCostsEndByEndAndStepsToTargetAreNone) {
  const doc::Bounded ratio = over(candidate(146, 120, 273), candidate(168, 139, 331));
  EXPECT_DOUBLE_EQ(*ratio.low, 273.0 / 331);
  EXPECT_DOUBLE_EQ(*ratio.high, 146.0 / 168);
  doc::Candidate compressed = candidate(50, 45, 55);
  compressed.steps_to_target = doc::Bounded{1.5, 1.2, 2.5};
  compressed.target_s = doc::Bounded{75, 54, 137.5};
  EXPECT_DOUBLE_EQ(*over(compressed, candidate(100, 90, 110)).high, 1.25);
  EXPECT_EQ(verdict_of(candidate(100, 90, 110), compressed, 0.02),
            doc::AdviceVerdict::inconclusive);
}

TEST(Verdict, WithoutAnyIntervalTheEndsOfARatioAreUnknown) {
  doc::Candidate a, b;
  a.step_s = a.target_s = doc::Bounded{90};
  b.step_s = b.target_s = doc::Bounded{100};
  EXPECT_FALSE(over(a, b).low || over(a, b).high);
  EXPECT_EQ(verdict_of(b, a, 0.02), doc::AdviceVerdict::change);
  for (const doc::Candidate& c : advised(cluster(10)).candidates)
    EXPECT_FALSE(c.over_current && c.over_current->high) << c.strategy;
  a.steps_to_target = doc::Bounded{1, 0.9, 1.2};
  EXPECT_DOUBLE_EQ(*over(a, b).high, 1.08);
}

TEST(Advise, StepsGivenForWhatIsNoCandidateAreSaid) {
  AdviseOptions options =
      with_codec({"codec(ratio=8.0)=1.1", "codec(ratio=16)=1.2"}, "codec(ratio=8, encode=10GB/s)");
  const doc::Advice a = advised(cluster(1), options);
  EXPECT_EQ(find(a, "ddp+codec(ratio=8, encode=10GB/s)").steps_to_target->value, 1.1);
  EXPECT_THAT(a.notes, testing::Contains(AllOf(HasSubstr("no candidate is codec(ratio=16)."),
                                               HasSubstr("codec(ratio=8, encode=10GB/s)"))));
  options.steps.pop_back();
  EXPECT_THAT(advised(cluster(1), options).notes, Not(says("no candidate is")));
}

TEST(Advise, TheMeasuredErrorOfCollectivesMakesTheIntervals) {
  // One collective, +-20 %: bulk at 100 MB costs 1e-4 + 1.2 s, its step 1.26 s and its interval
  // 0.24 s either way.
  doc::Cluster measured = cluster(1);
  measured.collectives = {
      {.ranks = 4, .segments = {{1, std::int64_t{1} << 40, 1e-4, 1.2e-8, 0.8, 1.2}}}};
  const doc::Bounded step = *find(advised(measured), "bulk").step_s;
  EXPECT_NEAR(step.value, 1.26, 1e-3);
  EXPECT_NEAR(step.low.value_or(0), 1.02, 2e-3);
  EXPECT_NEAR(step.high.value_or(0), 1.50, 2e-3);
}

TEST(Advise, WhatDoesNotFitIsOut) {
  // ddp holds the 100 MB of gradients in buckets; the codec adds its payload (3.1 MB) and 100 MB of
  // residuals.
  AdviseOptions options = with_codec({"codec=1"});
  options.memory_bytes = 150e6;
  const doc::Advice a = advised(cluster(1), options);
  EXPECT_EQ(find(a, "ddp").standing, doc::Standing::ranked);
  const doc::Candidate* codec = codec_of(a, doc::Standing::does_not_fit);
  ASSERT_NE(codec, nullptr);
  EXPECT_NEAR(codec->memory_bytes, 203.1e6, 0.1e6);
  EXPECT_THAT(codec->reason, HasSubstr("out"));
  options.memory_bytes = 1e6;  // not even the gradients
  EXPECT_THROW(advised(cluster(1), options), UsageError);
  // The Cluster's counts where none is given.
  doc::Cluster c = cluster(1);
  c.memory_bytes = 150e6;
  EXPECT_NE(codec_of(advised(c, with_codec()), doc::Standing::does_not_fit), nullptr);
}

TEST(Advise, TheBandwidthTurningPointBracketsTheChange) {
  AdviseOptions options = with_codec({"codec=1.5"});
  const doc::Advice a = advised(cluster(1), options);
  const auto point = std::ranges::find_if(a.turning_points, [](const doc::TurningPoint& t) {
    return t.quantity == "bandwidth_bit_per_s" && t.low > 1e9;
  });
  ASSERT_NE(point, a.turning_points.end());
  EXPECT_LE(point->high / point->low, 1.011);
  EXPECT_NE(point->below, point->above);
  EXPECT_THAT(point->below, HasSubstr("codec"));
  options.bandwidth = BytesPerSecond{point->low * 0.98 / 8};
  EXPECT_EQ(advised(cluster(1), options).verdict, doc::AdviceVerdict::change);
}

/// The ceiling of a remedy; nullptr: there is none.
const doc::Ceiling* ceiling(const doc::Advice& a, const std::string& remedy) {
  const auto found = std::ranges::find(a.ceilings, remedy, &doc::Ceiling::remedy);
  return found == a.ceilings.end() ? nullptr : &*found;
}

void expect_below_the_step(const doc::Advice& a) {
  const double now = find(a, "ddp").step_s->value;
  for (const doc::Ceiling& c : a.ceilings) EXPECT_LE(c.step_s.value, now * (1 + 1e-9)) << c.remedy;
}

TEST(Advise, NoCeilingIsAboveTheCurrentStep) {
  const doc::Advice a = advised(cluster(1), with_codec());
  ASSERT_GE(a.ceilings.size(), 3u);
  expect_below_the_step(a);
  // 78 message steps a ring of 4: with infinite bandwidth only the latency is left, well below a
  // millisecond.
  EXPECT_NEAR(a.ceilings[0].step_s.value, 0.060, 0.001);
  // 1.2 s of communication cannot hide behind 60 ms: perfect overlap is the communication itself.
  EXPECT_NEAR(a.ceilings[1].step_s.value, 1.2, 0.01);
}

TEST(Advise, WhatMayLoseIsInconclusiveAndSaysWhatToDo) {
  const doc::Advice a = advised(cluster(1), with_codec({"codec=1.2[1.0,40]"}));
  EXPECT_EQ(a.verdict, doc::AdviceVerdict::inconclusive);
  EXPECT_THAT(a.sentence, AllOf(HasSubstr("may also take"), HasSubstr("keep ddp")));
}

TEST(Advise, AWideErrorThatAllStrategiesShareIsNoReasonToWait) {
  // bulk at 10 Gbit/s takes 60 + 120 ms, overlapping strategies about 140; +-50 % of 120 ms covers
  // that, at every end alike.
  for (const double share : {0.01, 0.5}) {
    const doc::Advice a = advised(measured(10, share), in_use("bulk"));
    EXPECT_EQ(a.verdict, doc::AdviceVerdict::change) << share;
    EXPECT_LT(*find(a, a.best).over_current->high, 1) << share;
  }
}

TEST(Advise, TheStrategyAdvisedIsItselfWorthTheChange) {
  // Whatever the network: what is advised gains more than the least gain over what is in use.
  for (double gbit = 0.5; gbit < 300; gbit *= 1.3) {
    const doc::Advice a = advised(cluster(gbit));
    if (a.verdict != doc::AdviceVerdict::change) continue;
    EXPECT_LT(find(a, a.best).target_s->value, 0.98 * find(a, "ddp").target_s->value) << gbit;
  }
}

TEST(Advise, ReasonsAreSentencesOfAtMost25Words) {
  doc::Cluster all = cluster(1);
  all.rank_speeds = {{1, 1, 0.050}};
  all.contention = doc::Contention{1.2, 1.3};
  all.start_delay_s = 1e-3, all.cores = 2, all.memory_bytes = 150e6;
  for (const doc::Cluster& c : {cluster(1), cluster(1000), all})
    for (const AdviseOptions& options : {with_codec(), with_codec({"codec=1.5"})})
      for (const doc::Candidate& candidate : advised(c, options).candidates) {
        const std::string& reason = candidate.reason;
        ASSERT_TRUE(reason.ends_with(".")) << reason;
        for (std::size_t at = 0; at < reason.size();) {
          const std::size_t end = std::min(reason.find(". ", at), reason.size());
          const std::string sentence = reason.substr(at, end - at);
          EXPECT_LT(std::count(sentence.begin(), sentence.end(), ' '), 25) << sentence;
          at = end + 2;
        }
      }
}

TEST(Advise, RankedAreInTheOrderOfTheirTimeToTarget) {
  const doc::Advice a = advised(cluster(10), with_codec({"codec=3", "ddp(wire=fp16)=1.1"}));
  for (std::size_t i = 1; i < a.candidates.size(); ++i)
    if (a.candidates[i].standing == doc::Standing::ranked) {
      EXPECT_LE(a.candidates[i - 1].target_s->value, a.candidates[i].target_s->value);
    }
}

TEST(Advise, ANarrowerWireIsRankedByItsStepsToo) {
  const auto standing = [](const AdviseOptions& options) {
    return find(advised(cluster(1), options), "ddp(wire=fp16)").standing;
  };
  EXPECT_EQ(standing({}), doc::Standing::unranked);
  EXPECT_EQ(standing({.steps = {parse_steps_to_target("ddp(wire=fp16)=1")}}),
            doc::Standing::ranked);
}

TEST(Advise, WithACodecTheReasonTellsTheCodingFromTheCommunication) {
  // 100 MB at 1 GB/s: 100 ms to encode and 100 ms to decode around a transfer of 72 us (6 steps of
  // 10 us, 1.5 MB at 125 GB/s), which is all that is exposed.
  const doc::Advice a =
      advised(cluster(1000), with_codec({}, "codec(ratio=100, encode=1GB/s, decode=1GB/s)"));
  EXPECT_THAT(find(a, "bulk+codec(ratio=100, encode=1GB/s, decode=1GB/s)").reason,
              HasSubstr("72.0 us of 72.0 us of communication exposed. With coding the step is "
                        "200 ms longer than one rank's."));
}

TEST(Advise, WaitingForALateRankIsSaidToBeWhatIsExposed) {
  // A rank that comes 50 ms late: the other three wait, 37.5 ms on average, for 1.5 ms of
  // communication.
  doc::Cluster c = cluster(1000);
  c.rank_speeds = {{1, 1, 0.050}};
  EXPECT_THAT(find(advised(c), "ddp").reason,
              HasSubstr("1.50 ms of communication, 37.7 ms exposed with waits for late ranks."));
  c.start_delay_s = 1e-3;
  EXPECT_THAT(find(advised(c), "ddp").reason,
              HasSubstr("exposed with waits for late ranks and the delay before collectives."));
  // All communication is behind backward, and one rank is as fast as the other: none is late.
  for (const doc::Candidate& even : advised(cluster(1)).candidates)
    EXPECT_THAT(even.reason, Not(HasSubstr("late ranks"))) << even.strategy;
}

TEST(Advise, PerfectOverlapHidesNothingBehindLessThanTheSlowestRank) {
  // Rank 2 computes 1.5 times as long, and 5 ms more: 95 ms, longer than 12 ms of communication.
  doc::Cluster slow = cluster(100);
  slow.rank_speeds = {{.rank = 2, .compute_factor = 1.5, .delay_s = 0.005}};
  const doc::Advice a = advised(slow);
  EXPECT_NEAR(ceiling(a, "perfect overlap")->step_s.value, 0.095, 1e-9);
  EXPECT_THAT(ceiling(a, "perfect overlap")->reason, HasSubstr("of the slowest rank"));
}

// Whatever is planned, computation stands still for them: no strategy has a shorter step.
TEST(Advise, PerfectOverlapHidesNoCollectiveThatComputationWaitsFor) {
  for (const double gbit : {0.3, 3.0, 30.0})
    for (const doc::StepPlace place : {doc::StepPlace::forward, doc::StepPlace::update}) {
      doc::Workload w = workload();
      const doc::Advice without = advise(w, measured(gbit, 0.1), {});
      for (int i = 0; i < 8; ++i)
        w.other_collectives.push_back({.bytes = 1'000'000, .place = place});
      const doc::Advice with = advise(w, measured(gbit, 0.1), {});
      const doc::Ceiling& c = *ceiling(with, "perfect overlap");
      const double added_s =
          *find(with, "bulk").communication_s - *find(without, "bulk").communication_s;
      EXPECT_GT(added_s, 0);
      EXPECT_NEAR(c.step_s.value, ceiling(without, "perfect overlap")->step_s.value + added_s,
                  1e-9);
      EXPECT_THAT(c.reason, HasSubstr("for which computation waits in any case"));
      for (const doc::Candidate& each : with.candidates)
        if (each.standing == doc::Standing::ranked) {
          EXPECT_GE(each.step_s->value, c.step_s.value * (1 - 1e-9)) << each.strategy;
        }
    }
}

// A ceiling keeps its promise at both ends of what T_1 and the network may be.
TEST(Advise, CeilingsHaveTheIntervalOfWhatTheyAreMadeOf) {
  doc::Workload w = workload();
  w.step_s = w.one_rank_step_s(), w.step_low_s = 0.9 * *w.step_s, w.step_high_s = 1.2 * *w.step_s;
  const doc::Advice a = advise(w, measured(100, 0.1), {});
  const doc::Ceiling& c = *ceiling(a, "perfect overlap");
  EXPECT_NEAR(*c.step_s.low, *w.step_low_s, 1e-9);
  EXPECT_NEAR(*c.step_s.high, *w.step_high_s, 1e-9);
  const doc::Bounded now = *find(a, "ddp").step_s;
  const double most = std::max({1 - c.step_s.value / now.value, 1 - *c.step_s.low / *now.low,
                                1 - *c.step_s.high / *now.high});
  EXPECT_THAT(c.reason, HasSubstr("at most " + format_percent(most) + " of the step."));
}

TEST(Advise, PerfectOverlapIsABoundForOtherBucketsToo) {
  // Forty buckets pay the latency of 10 ms a message step forty times, one pays it once.
  doc::Cluster far = cluster(1);
  far.network.latency_s = 10e-3;
  const doc::Advice a = advised(far, in_use("wfbp"));
  const doc::Candidate& bulk = find(a, "bulk");
  EXPECT_LT(ceiling(a, "perfect overlap")->step_s.value, *find(a, "wfbp").communication_s);
  EXPECT_LE(ceiling(a, "perfect overlap")->step_s.value, bulk.step_s->value);
}

TEST(Advise, ZeroEncodeCostIsSaidOnceACodecAndIsNoLongerThanTheCodecItself) {
  const doc::Advice a =
      advised(cluster(1), with_codec({}, "codec(ratio=8, encode=1GB/s, decode=1GB/s)"));
  EXPECT_EQ(std::ranges::count(a.ceilings, "zero encode cost", &doc::Ceiling::remedy), 1);
  EXPECT_LE(ceiling(a, "zero encode cost")->step_s.value,
            codec_of(a, doc::Standing::unranked)->step_s->value);
}

TEST(Advise, StragglersAndContentionHaveTheirCeilingsAndNoneExceedsTheStep) {
  doc::Cluster c = cluster(10);
  c.rank_speeds = {{1, 1.5, 0.005}};
  c.contention = doc::Contention{1.2, 1.3};
  const doc::Advice a = advised(c);
  EXPECT_NE(ceiling(a, "no late ranks"), nullptr);
  EXPECT_NE(ceiling(a, "no contention"), nullptr);
  // Without a codec, too.
  for (const char* remedy : {"infinite bandwidth", "perfect overlap", "zero encode cost"})
    EXPECT_NE(ceiling(a, remedy), nullptr) << remedy;
  expect_below_the_step(a);
}

TEST(Advise, ACodecIsTriedBehindEveryExchange) {
  const doc::Advice a = advised(cluster(1), with_codec());
  for (const char* exchange : {"ddp", "bulk", "horovod", "optimal", "dear"})
    EXPECT_NO_THROW(
        find(a, std::string(exchange) + "+codec(ratio=32, encode=100GB/s, decode=100GB/s)"));
  // Settings of one exchange are one family.
  EXPECT_EQ(find(a, "ddp(bucket=5MiB)").family, "ddp");
  EXPECT_EQ(find(a, "ddp(wire=fp16)").family, "ddp(wire=fp16)");
}

TEST(Advise, SaysWhatWasNotMeasured) {
  const doc::Cluster fitted = measured(10, 0.1);
  const std::pair<const char*, doc::Advice> cases[] = {
      {"no measured error", advised(cluster(10))},
      {"only with --steps-to-target", advised(cluster(1), with_codec())},
      {"Extrapolated: collectives were measured on 4 ranks", advised(fitted, {.ranks = 16})},
      {"measured at 10.0 Gbit/s", advised(fitted, {.bandwidth = BytesPerSecond{kGbit}})}};
  for (const auto& [words, advice] : cases) EXPECT_THAT(advice.notes, says(words));
  EXPECT_FALSE(cases[0].second.candidates.front().step_s->low.has_value());
  EXPECT_THAT(advised(fitted).notes, Not(says("Extrapolated")));
}

TEST(Advise, SaysWhichCollectivesAndSizesWereNotMeasured) {
  doc::Cluster c = measured(10, 0.1);
  EXPECT_THAT(advised(c, in_use("bulk")).notes,
              says("Derived: reduce-scatter, all-gather not measured"));
  const auto notes_of = [&](const char* strategy) {
    return whatif::ask(workload(), c, {.strategies = {doc::parse_strategy(strategy)}}).notes;
  };
  for (const char* words : {"Derived", "Not measured", "outside"})
    EXPECT_THAT(notes_of("bulk"), Not(says(words)));
  c.collectives.front().samples = {{.bytes = 1e3, .seconds = 1e-4},
                                   {.bytes = 1e6, .seconds = 2e-4}};
  const std::string outside = "outside the measured sizes of all-reduce, 1.00 kB to 1.00 MB";
  EXPECT_THAT(notes_of("bulk"), says("Extrapolated: messages of 100 MB are " + outside));
  EXPECT_THAT(notes_of("dear"), says(outside));
  c.collectives.front().collective = Collective::broadcast;
  EXPECT_THAT(notes_of("dear"), says("Not measured: reduce-scatter, all-gather. A formula"));
}

TEST(Advise, ACurrentStrategyThatMissedItsTargetIsLeft) {
  AdviseOptions options = in_use("ddp+codec(ratio=8)");
  options.steps = steps_to_target_from_json(
      R"json({"document": "steps-to-target", "schema": 1, "runs": [
             {"strategy": "ddp", "steps": 100}, {"strategy": "ddp+codec(ratio=8)", "steps": null}]})json",
      "r.json");
  EXPECT_THAT(advised(cluster(1), options).sentence, HasSubstr("missed the target"));
}

TEST(Advise, IsDeterministicAndItsJsonReadsBackUnchanged) {
  const std::string text = doc::to_json(advised(cluster(10), with_codec()));
  EXPECT_EQ(doc::to_json(advised(cluster(10), with_codec())), text);
  EXPECT_EQ(doc::to_json(doc::advice_from_json(text, "a.json")), text);
}

TEST(Advise, TheClustersCodecsAreConsideredOrTheirLackNamed) {
  doc::Cluster c = cluster(1);
  c.codecs = {{"codec(ratio=16)", 0, 5e10, 0, 5e10}, {"mystery", 0, 1e9, 0, 1e9}};
  const doc::Advice a = advised(c);
  ASSERT_NE(codec_of(a, doc::Standing::unranked), nullptr);
  EXPECT_THAT(codec_of(a, doc::Standing::unranked)->strategy, HasSubstr("ratio=16"));
  EXPECT_THAT(a.notes, says("mystery"));
}

TEST(Advise, WhatIsInUseMayChangeConvergenceByAnUnknownFactor) {
  for (const char* current : {"ddp(wire=fp16)", "ddp+codec(ratio=8)"}) {
    AdviseOptions options = in_use(current);
    const doc::Advice a = advised(cluster(1), options);
    EXPECT_EQ(find(a, current).standing, doc::Standing::ranked);
    EXPECT_EQ(find(a, current).steps_to_target.value().value, 1);
    EXPECT_THAT(a.notes, says("nothing says how many steps it takes"));
    options.steps = {parse_steps_to_target(std::string(current) + "=1.5")};
    const doc::Advice told = advised(cluster(1), options);
    EXPECT_EQ(find(told, current).steps_to_target->value, 1.5);
    EXPECT_THAT(told.notes, Not(says("nothing says how many steps it takes")));
  }
  // Behind another exchange the same is sent, another wire type is not.
  AdviseOptions options = in_use("ddp(wire=fp16)");
  options.more = {doc::parse_strategy("bulk(wire=fp16)"), doc::parse_strategy("bulk(wire=bf16)")};
  const doc::Advice a = advised(cluster(1), options);
  EXPECT_EQ(find(a, "bulk(wire=fp16)").standing, doc::Standing::ranked);
  EXPECT_EQ(find(a, "bulk(wire=bf16)").standing, doc::Standing::unranked);
}

TEST(Advise, RefusesUnknownStrategiesWorkloadsWithoutGradientsAndStepsOfNoLength) {
  EXPECT_THROW(advised(cluster(10), in_use("teleport")), UsageError);
  EXPECT_THROW(static_cast<void>(advise(doc::Workload{}, cluster(10), {})), InputError);
  // Such a step has no scaling factor.
  doc::Workload w = workload();
  w.gradients.resize(1);
  w.gradients[0].ready_s = 0;
  w.backward_s = 0, w.forward_s = 0, w.step_s = 0;
  doc::Cluster alone = cluster(10);
  alone.ranks = 1;
  EXPECT_THROW(static_cast<void>(advise(w, alone, {})), InputError);
  for (const whatif::Preset preset : {whatif::Preset::none, whatif::Preset::agarwal2021}) {
    const whatif::Question q{
        .preset = preset, .strategies = {doc::parse_strategy("ddp")}, .ranks = {1}};
    for (const doc::Prediction& p : whatif::ask(w, alone, q).predictions)
      EXPECT_EQ(p.scaling_factor, std::nullopt);
  }
}

TEST(Advise, ACastTheClusterKnowsIsTriedAsTheWireItIs) {
  doc::Cluster c = cluster(1);
  c.codecs = {{"bf16", 0, 5e10, 0, 5e10}};
  const doc::Advice a = advised(c);
  for (const char* exchange : {"ddp", "bulk", "horovod", "optimal", "dear"})
    EXPECT_TRUE(find(a, std::string(exchange) + "(wire=bf16)").trains) << exchange;
  EXPECT_EQ(codec_of(a, doc::Standing::unranked), nullptr);
}

TEST(Advise, AnAdviceOfBeforeReadsAsIfEverythingTrained) {
  const doc::Advice a = doc::advice_from_json(
      R"json({"document": "advice", "schema": 1, "workload": "w", "cluster": "c", "ranks": 2,
      "bandwidth_bit_per_s": 1e9, "one_rank_step_s": 1, "current": "ddp", "verdict": "do nothing",
      "best": "ddp", "sentence": "", "ceilings": [], "turning_points": [], "notes": [],
      "candidates": [{"strategy": "ddp", "standing": "ranked", "step_s": null, "target_s": null,
                      "steps_to_target": null, "memory_bytes": 1, "reason": ""}]})json",
      "a.json");
  EXPECT_TRUE(a.candidates.front().trains);
  EXPECT_EQ(a.candidates.front().family, "ddp");
}

TEST(Memory, IsThatOfBucketsPayloadsAndWhatACodecKeeps) {
  struct Case {
    const char* claim;
    const char* strategy;
    int ranks;
    double buckets, payloads, error_memory;
  };
  for (const Case& c :
       {Case{"dense buckets need no second buffer", "ddp", 4, 100e6, 0, 0},
        // 25 M elements: 100 MB dense, 50 MB as fp16.
        Case{"a cast is a second buffer", "bulk(wire=fp16)", 4, 100e6, 50e6, 0},
        // 100 MB / 8 from each of 4 ranks.
        Case{"gathered payloads count once a rank",
             "bulk+codec(ratio=8, encode=10GB/s, exchange=gather)", 4, 100e6, 4 * 12.5e6, 100e6},
        // 40 gradients of 625,000 elements in one bucket: 25,000,000 = 3 * 8,333,333 + 1.
        Case{"the padding of halves counts", "dear(bucket=1GiB)", 3, 4 * 25'000'002.0, 0, 0}}) {
    const MemoryNeed need = memory_of(
        plan::make_plan(workload(), cluster(10), doc::parse_strategy(c.strategy), c.ranks));
    EXPECT_DOUBLE_EQ(need.buckets, c.buckets) << c.claim;
    EXPECT_DOUBLE_EQ(need.payloads, c.payloads) << c.claim;
    EXPECT_DOUBLE_EQ(need.error_memory, c.error_memory) << c.claim;
    EXPECT_DOUBLE_EQ(need.factors, 0) << c.claim;
  }
}

// Two layers of A 100 x 100 and G 50 x 50: 12,500 elements as matrices, 6,325 as triangles each.
doc::Workload two_layers() {
  doc::Workload w;
  for (int layer = 0; layer < 2; ++layer) {
    w.layers.push_back({"fc" + std::to_string(layer), "linear", 1e-3, {}, 0});
    w.blocks.push_back({.layer = layer, .a = 100, .g = 50, .rows_a = 8, .rows_g = 8});
  }
  for (int layer = 1; layer >= 0; --layer)
    w.gradients.push_back({.name = "w" + std::to_string(layer),
                           .elements = 5000,
                           .layer = layer,
                           .ready_s = 1e-3 * (2 - layer),
                           .rows = 50});
  w.backward_s = 2e-3, w.forward_s = 1e-3, w.step_s = 3e-3;
  return w;
}

doc::Cluster second_order_cluster() {
  doc::Cluster c = cluster(10);
  c.second_order = doc::SecondOrderCost{.inverse_fixed_s = 1e-3};
  return c;
}

doc::Plan preconditioned(const std::string& sharing, int ranks) {
  return plan::make_plan(two_layers(), second_order_cluster(),
                         doc::parse_strategy("ddp+kfac(" + sharing + ")"), ranks);
}

TEST(Memory, OfFactorsAndInversesIsWhatTheStrategyKeepsOnARank) {
  constexpr double kWhole = 4 * 12'500, kTriangles = 4 * 6'325;  // bytes of a layer
  const auto kept = [](const std::string& sharing, int ranks) {
    const doc::Plan plan = preconditioned(sharing, ranks);
    double sent = 0;  // most of what payloads of a variant hold
    for (const doc::TaskGraph& graph : plan.variants) {
      double bytes = 0;
      for (const doc::Payload& p : graph.payloads)
        if (p.content == doc::Content::factors || p.content == doc::Content::inverse)
          bytes += static_cast<double>(p.bytes());
      sent = std::max(sent, bytes);
    }
    return memory_of(plan).factors - sent;
  };
  // Statistics and inverses of both layers as matrices, averages as triangles.
  for (const char* everywhere : {"d", "mpd", "spd"})
    EXPECT_DOUBLE_EQ(kept(everywhere, 2), 2 * (2 * kWhole + kTriangles)) << everywhere;
  EXPECT_DOUBLE_EQ(kept("mem", 2), 2 * (kWhole + kTriangles) + kWhole);
  EXPECT_DOUBLE_EQ(kept("dp", 2), 2 * kWhole + kTriangles);
  EXPECT_DOUBLE_EQ(kept("hybrid, fraction=0.5", 4), kept("mem", 2));
  EXPECT_DOUBLE_EQ(kept("mem", 1), kept("d", 1));
}

TEST(Advise, PreconditionsOnlyWhereItIsAskedTo) {
  AdviseOptions options;
  const auto of_kfac = [&] {
    const doc::Advice advice = advise(two_layers(), second_order_cluster(), options);
    return std::count_if(
        advice.candidates.begin(), advice.candidates.end(),
        [](const doc::Candidate& x) { return x.strategy.find("kfac") != std::string::npos; });
  };
  EXPECT_EQ(of_kfac(), 0);
  options.more = {doc::parse_strategy("ddp+kfac(spd)")};
  EXPECT_EQ(of_kfac(), 1);
}

/// Residual and its next value; dgc's two accumulators and their copies; a sign keeps nothing.
TEST(Memory, ACompressorSaysWhatItKeeps) {
  doc::Workload matrices = workload();
  for (doc::Gradient& g : matrices.gradients) g.rows = 625;
  const auto kept = [&](const char* strategy) {
    return memory_of(plan::make_plan(matrices, cluster(10), doc::parse_strategy(strategy), 4))
        .error_memory;
  };
  EXPECT_DOUBLE_EQ(kept("bulk+topk(density=0.01, exchange=gather)"), 2 * 100e6);
  // The owner's residual of its quarter of each matrix, in chunks of 4096: 159,744 of 625,000.
  EXPECT_DOUBLE_EQ(kept("bulk+topk(density=0.01, exchange=two-phase)"),
                   2 * (100e6 + 40 * 4 * 159'744));
  EXPECT_DOUBLE_EQ(kept("bulk+dgc"), 4 * 100e6);
  EXPECT_DOUBLE_EQ(kept("bulk+signsgd"), 0);
  // Two rounds encode the same tensors; between steps the right factors stay, 4 columns of 1000.
  EXPECT_DOUBLE_EQ(kept("bulk+powersgd(rank=4)"), 2 * (100e6 + 40 * 4 * 4 * 1000));
}

}  // namespace
}  // namespace linerate::advise
