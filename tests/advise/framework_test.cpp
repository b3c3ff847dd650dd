#include "linerate/advise/notes.hpp"

#include <gmock/gmock.h>

#include "advise/advise_jobs.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::advise {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Framework, StrategiesAreInTheWordsOfDdpOrAreNoneOfIts) {
  const auto words = [](const char* text) { return in_pytorch(doc::parse_strategy(text)); };
  EXPECT_EQ(words("ddp"), "DDP(model)");
  EXPECT_EQ(words("ddp(bucket_cap_mb=100)"), "DDP(model, bucket_cap_mb=100)");
  EXPECT_EQ(words("ddp(small=last)"), "DDP(model, find_unused_parameters=True)");
  EXPECT_EQ(words("ddp(wire=fp16)"), "DDP(model) with fp16_compress_hook");
  EXPECT_EQ(words("ddp(bucket_cap_mb=5, wire=bf16)"),
            "DDP(model, bucket_cap_mb=5) with bf16_compress_hook");
  EXPECT_EQ(words("ddp+powersgd(rank=8)"),
            "DDP(model) with powerSGD_hook, PowerSGDState(matrix_approximation_rank=8)");
  for (const char* other : {"ddp(bucket=5MiB)", "ddp(first=2MiB)", "dear", "bulk", "ddp+topk",
                            "ddp(wire=fp16)+powersgd(rank=4)", "ddp+powersgd(rank=4)+kfac(spd)"})
    EXPECT_FALSE(words(other)) << other;
}

// Over networks, strategies in use and what the Cluster knows of codecs: the advice has no word of
// linerate's but in saying what linerate.torch adds.
TEST(Framework, PytorchNamesOnlyWhatDdpCanDo) {
  for (const double gbit : {1.0, 10.0, 1000.0})
    for (const char* current : {"ddp", "ddp(bucket_cap_mb=25)", "ddp(wire=fp16)"}) {
      AdviseOptions options = in_use(current);
      const doc::Advice all = advised(measured(gbit, 0.05), options);
      options.framework = Framework::pytorch;
      options.more = {doc::parse_strategy("ddp+powersgd(rank=4)")};
      doc::Workload w = workload();
      for (doc::Gradient& g : w.gradients) g.rows = 625;
      doc::Advice a = advise(w, measured(gbit, 0.05), options);
      for (const doc::Candidate& c : a.candidates) EXPECT_THAT(c.named, StartsWith("DDP(model"));
      EXPECT_EQ(find(a, current).step_s->value, find(all, current).step_s->value);
      EXPECT_THAT(a.beyond, StartsWith("linerate.torch "));
      a.beyond.clear();
      std::erase_if(a.notes, [](const std::string& n) { return n.starts_with("--steps-to"); });
      const std::string text = report::to_text(a, true);
      for (const auto& line : plan::exchanges().lines())
        EXPECT_THAT(text, Not(testing::ContainsRegex("[^.a-z]" + line.name + "[^.a-z_]")))
            << current;
      for (const char* word : {"wire=", "powersgd", "codec(", "topk"})
        EXPECT_THAT(text, Not(HasSubstr(word))) << current;
      for (const char* word :
           {"bucket_cap_mb=", "fp16_compress_hook", "bf16_compress_hook",
            "PowerSGDState(matrix_approximation_rank=4)", "static_graph=True",
            "gradient_as_bucket_view=True", "find_unused_parameters=False", "no_sync()"})
        EXPECT_THAT(text, HasSubstr(word)) << current;
    }
}

TEST(Framework, SaysWhatLinerateTorchWouldGain) {
  const doc::Advice all = advised(measured(10, 0.05));
  ASSERT_EQ(all.verdict, doc::AdviceVerdict::change);
  const auto beyond = [](double gbit) {
    return advised(measured(gbit, 0.05), {.framework = Framework::pytorch}).beyond;
  };
  EXPECT_THAT(beyond(10), HasSubstr("would add strategy=\"" + all.best + "\""));
  EXPECT_THAT(beyond(10000), HasSubstr("would add nothing"));
}

}  // namespace
}  // namespace linerate::advise
