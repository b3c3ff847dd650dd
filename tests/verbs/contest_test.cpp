// Who runs when, and what is made of it, with strategies whose steps are numbers.
#include "linerate/verbs/contest.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "linerate/comm/thread/run_ranks.hpp"
#include "support/message_of.hpp"

namespace linerate::verbs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

/// So many steps of as many seconds, of one rank, with an all-reduce in the last tenth.
Round round_of(double step_s, std::int64_t steps) {
  Round round;
  round.sent_bytes = 1000 * step_s;
  const std::int64_t length = doc::nanoseconds(step_s);
  for (std::int32_t i = 0; i < steps; ++i) {
    round.timeline.steps.push_back({0, i, i * length, (i + 1) * length, "steady"});
    doc::Event sent;
    sent.kind = doc::TaskKind::all_reduce, sent.resource = doc::Resource::network, sent.step = i;
    sent.start_ns = (i + 1) * length - length / 10, sent.end_ns = (i + 1) * length;
    round.timeline.events.push_back(sent);
  }
  return round;
}

struct Played {
  std::vector<doc::TimedRun> runs;
  std::vector<std::string> turns;  // strategies in the order in which rank 0 ran them
};

/// Steps take 1 s; with buckets of 5 MiB 0.8 s, with halves on the wire half as long.
Played play(const ContestOptions& options, std::int64_t gradient_bytes) {
  Played played;
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    const auto prepare = [&](const std::string& strategy) -> RunRound {
      return [&, strategy](std::int64_t steps) {
        if (communicator.rank() != 0) return Round{};
        played.turns.push_back(strategy);
        double step_s = strategy.find("5MiB") == std::string::npos ? 1 : 0.8;
        if (strategy.find("fp16") != std::string::npos) step_s /= 2;
        return round_of(step_s, steps);
      };
    };
    const std::vector<doc::TimedRun> runs = contest(communicator, options, gradient_bytes, prepare);
    EXPECT_EQ(runs.size(), 3 + options.candidates.size());  // on every rank
    if (communicator.rank() == 0) played.runs = runs;
  });
  return played;
}

std::vector<std::string> names_of(const Played& played) {
  std::vector<std::string> names;
  for (const doc::TimedRun& run : played.runs)
    names.push_back(std::string(name_of(run.role)) + " " + run.strategy);
  return names;
}

TEST(Contest, EachRoundBeginsWithAnotherStrategy) {
  const Played played = play({.candidates = {"topk(density=0.01)"}, .rounds = 2, .steps = 3}, 1000);
  // Gradients that fill no bucket leave nothing to tune.
  EXPECT_THAT(played.turns, ElementsAre("ddp", "ddp(wire=fp16)", "ddp", "ddp+topk(density=0.01)",
                                        "ddp(wire=fp16)", "ddp", "ddp+topk(density=0.01)", "ddp"));
}

TEST(Contest, BaselinesHaveTheirBestBucketSizeAndCandidatesFp32s) {
  const Played played = play(
      {.candidates = {"topk(density=0.01)", "dear"}, .rounds = 1, .tuning_rounds = 1, .steps = 2},
      20 * kMiB);
  EXPECT_THAT(names_of(played),
              ElementsAre("fp32 ddp(bucket=5MiB)", "16-bit ddp(wire=fp16, bucket=5MiB)",
                          "repeat ddp(bucket=5MiB)",
                          "candidate ddp(bucket=5MiB)+topk(density=0.01)", "candidate dear"));
}

TEST(Contest, ARunIsTheMedianOfItsRounds) {
  const Played played = play({.candidates = {}, .rounds = 3, .steps = 4}, 1000);
  const doc::TimedRun& fp32 = played.runs.front();
  EXPECT_THAT(fp32.round_step_s, ElementsAre(1, 1, 1));
  EXPECT_DOUBLE_EQ(fp32.communication_s, 0.1);
  EXPECT_DOUBLE_EQ(fp32.exposed_s, 0.1);
  EXPECT_EQ(fp32.encode_s, 0);
  EXPECT_EQ(fp32.sent_bytes, 1000);
  EXPECT_DOUBLE_EQ(played.runs[1].round_step_s.front(), 0.5);
}

TEST(Contest, ACandidateHasTheOptionsOfItsCompressor) {
  const Played played =
      play({.candidates = {"topk(density=0.01)", "fp16"}, .rounds = 1, .steps = 2}, 1000);
  EXPECT_FALSE(played.runs[3].is_summable);
  EXPECT_THAT(played.runs[3].options, ::testing::Contains("density"));
  EXPECT_TRUE(played.runs[4].is_summable);
}

TEST(Contest, WhatCannotBeComparedIsRefused) {
  const auto refusal = [](const ContestOptions& options) {
    return support::message_of([&] { check(options); });
  };
  EXPECT_EQ(refusal({.candidates = {"topk(density=0.01)", "dear+fp16"}}), "no error");
  EXPECT_THAT(refusal({.exchange = "ddp+fp16"}), HasSubstr("changes what is sent"));
  EXPECT_THAT(refusal({.candidates = {"qsgd", "ddp+qsgd"}}), HasSubstr("is named twice"));
  EXPECT_THAT(refusal({.candidates = {"ddp(wire=fp16)"}}), HasSubstr("is a baseline"));
}

}  // namespace
}  // namespace linerate::verbs
