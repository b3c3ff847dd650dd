// Which strategies advice considers, over the whole registry: one that is added there is
// considered.
#include "linerate/advise/search_space.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/planner.hpp"
#include "support/says.hpp"

namespace linerate::advise {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> considered(const std::string& current,
                                    const std::vector<doc::Component>& codecs = {}) {
  std::vector<std::string> texts;
  for (const doc::Strategy& s :
       search_space(doc::parse_strategy(current), codecs, {}, {}).strategies)
    texts.push_back(doc::to_text(s));
  return texts;
}

TEST(SearchSpace, HoldsEveryRegisteredStrategyAndWhatItsLineNames) {
  const std::vector<std::string> texts = considered("ddp");
  for (const auto& line : plan::exchanges().lines()) {
    EXPECT_THAT(texts, Contains(line.name));
    for (const std::string_view options : line.make.candidates.options)
      EXPECT_THAT(texts, Contains(line.name + "(" + std::string(options) + ")"));
  }
}

TEST(SearchSpace, CanPlanAllOfIt) {
  doc::Cluster cluster;
  cluster.codecs = {{.name = "fp16"}, {.name = "powersgd(rank=4)"}, {.name = "topk(density=0.01)"}};
  const SearchSpace space = search_space(
      doc::parse_strategy("wfbp"), {parse_codec("codec(ratio=8, encode=10GB/s)")}, {}, cluster);
  for (const doc::Strategy& s : space.strategies)
    EXPECT_NO_THROW(plan::Planner(s, cluster)) << doc::to_text(s);
}

TEST(SearchSpace, LeavesOutWhatNoOptimizerStepsBy) {
  doc::Cluster cluster;
  cluster.codecs = {{.name = "onebit-adam(freeze_step=100)"}, {.name = "efsignsgd"}};
  const SearchSpace space = search_space(doc::parse_strategy("ddp"), {}, {}, cluster);
  for (const doc::Strategy& s : space.strategies)
    EXPECT_THAT(doc::to_text(s), testing::Not(HasSubstr("onebit-adam")));
  EXPECT_THAT(
      space.notes,
      ElementsAre(HasSubstr("onebit-adam(freeze_step=100) is not tried: onebit-adam sends")));
}

TEST(SearchSpace, HasNoStrategyTwiceAndTheOneInUseFirst) {
  for (const auto& line : plan::exchanges().lines()) {
    const auto texts = considered(line.name, {parse_codec("codec(ratio=8)")});
    EXPECT_EQ(texts.front(), line.name);
    EXPECT_EQ(std::set(texts.begin(), texts.end()).size(), texts.size()) << line.name;
  }
}

// The first of those that gain enough is the advice: dense before narrow, fixed before searched.
TEST(SearchSpace, GoesFromThePlainestOn) {
  EXPECT_THAT(
      considered("ddp"),
      ElementsAre("ddp", "bulk", "ddp(bucket=5MiB)", "ddp(bucket=10MiB)", "ddp(bucket=50MiB)",
                  "ddp(bucket=100MiB)", "wfbp", "horovod", "horovod(threshold=128MiB, cycle=1ms)",
                  "mg-wfbp", "optimal", "dear", "dear(bucket=5MiB)", "dear(bucket=50MiB)",
                  "dear(layers=4)", "ddp(wire=fp16)", "optimal(wire=fp16)", "dear(wire=fp16)"));
}

TEST(SearchSpace, TriesACodecWithWhatTheRegistryNamesAndWithTheOneInUse) {
  const std::string codec = "codec(ratio=8)";
  const std::vector<std::string> texts = considered("ddp", {parse_codec(codec)});
  for (const auto& line : plan::exchanges().lines()) {
    const bool is_tried = std::count(texts.begin(), texts.end(), line.name + "+" + codec) == 1;
    EXPECT_EQ(is_tried, line.make.candidates.with_codecs) << line.name;
    EXPECT_THAT(considered(line.name, {parse_codec(codec)}), Contains(line.name + "+" + codec));
  }
}

TEST(SearchSpace, LeavesOutFactorsOfMatricesThatAWorkloadDoesNotName) {
  doc::Cluster cluster;
  cluster.codecs = {{.name = "powersgd(rank=4)"}, {.name = "topk(density=0.01)"}};
  const doc::Strategy asked = doc::parse_strategy("bulk+powersgd(rank=2)");
  const SearchSpace space =
      search_space(doc::parse_strategy("ddp"), {}, {asked}, cluster, /*knows_shapes=*/false);
  std::vector<std::string> with_factors;
  bool tries_topk = false;
  for (const doc::Strategy& s : space.strategies) {
    if (plan::needs_shapes(s, cluster)) with_factors.push_back(doc::to_text(s));
    tries_topk |= doc::to_text(s) == "ddp+topk(density=0.01)";
  }
  EXPECT_THAT(with_factors, ElementsAre(doc::to_text(asked)));
  EXPECT_TRUE(tries_topk);
  EXPECT_THAT(space.notes,
              Contains(testing::AllOf(HasSubstr("Not tried: powersgd(rank=4), auto. They"),
                                      HasSubstr("record_shapes=True."))));
}

}  // namespace
}  // namespace linerate::advise
