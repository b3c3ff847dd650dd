// Advice for a job that is measured, and in the words of its framework.
#include <gmock/gmock.h>

#include "advise/advise_jobs.hpp"
#include "linerate/advise/notes.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::advise {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

doc::Workload recorded(double step_s) {
  doc::Workload w = workload();
  w.recorded = doc::RecordedStep{step_s, 4};
  return w;
}

// Whatever strategy was measured, on networks with and without a known error: a step as predicted
// changes no advice, a step beyond the interval makes none certain. An error below a quarter of the
// gain cannot turn the advice around.
TEST(Present, AStepOutsideItsPredictionLowersTheConfidence) {
  int changes = 0, small_misses = 0;
  for (const auto& line : plan::exchanges().lines())
    for (const doc::Cluster& c : {measured(1, 0.1), measured(10, 0.1), cluster(10)}) {
      SCOPED_TRACE(line.name);
      const AdviseOptions options = in_use(line.name);
      const doc::Advice unmeasured = advised(c, options);
      EXPECT_EQ(unmeasured.confidence, doc::Confidence::unchecked);
      EXPECT_EQ(unmeasured.present, "");
      const doc::Bounded step = *find(unmeasured, line.name).step_s;
      const doc::Advice good = advise(recorded(step.value), c, options);
      EXPECT_EQ(good.confidence, doc::Confidence::checked);
      EXPECT_EQ(good.sentence, unmeasured.sentence);
      EXPECT_EQ(good.verdict, unmeasured.verdict);
      EXPECT_THAT(report::to_text(good, false),
                  HasSubstr("\nStrategy in use, " + line.name + ": measured "));
      changes += good.verdict == doc::AdviceVerdict::change;
      for (const double times : {0.2, 5.0}) {
        const doc::Advice missed = advise(recorded(step.value * times), c, options);
        EXPECT_EQ(missed.confidence, doc::Confidence::low);
        EXPECT_NE(missed.verdict, doc::AdviceVerdict::change);
        EXPECT_THAT(report::to_text(missed, true),
                    AllOf(HasSubstr("\nStrategy in use, "), Not(HasSubstr("Change "))));
        EXPECT_THAT(missed.present, HasSubstr("lies outside the prediction"));
        EXPECT_EQ(missed.measured_step_s, step.value * times);
      }
      if (unmeasured.verdict != doc::AdviceVerdict::change || !step.high) continue;
      ++small_misses;
      const double gain_s = step.value - unmeasured.candidates.front().target_s->value;
      const doc::Advice near = advise(recorded(*step.high + 0.2 * gain_s), c, options);
      EXPECT_EQ(near.confidence, doc::Confidence::checked);
      EXPECT_EQ(near.verdict, doc::AdviceVerdict::change);
      EXPECT_THAT(near.present, HasSubstr("outside the interval by"));
      const doc::Advice far = advise(recorded(*step.high + 0.3 * gain_s), c, options);
      EXPECT_EQ(far.confidence, doc::Confidence::low);
      EXPECT_NE(far.verdict, doc::AdviceVerdict::change);
    }
  EXPECT_GT(changes, 3);
  EXPECT_GT(small_misses, 0);
}

TEST(Present, AnotherJobThanTheRecordedOneIsNotComparedWithIt) {
  for (const AdviseOptions& other :
       {AdviseOptions{.ranks = 8}, AdviseOptions{.bandwidth = BytesPerSecond{kGbit}}})
    EXPECT_EQ(advise(recorded(1), cluster(10), other).present, "");
  EXPECT_FALSE(doc::scaled(recorded(1), 2).recorded.has_value());
}

TEST(Present, AnUnknownStrategyIsNotTakenForDdp) {
  const AdviseOptions options{.current_is_known = false};
  const doc::Advice unmeasured = advised(cluster(10), options);
  const double ddp_s = find(unmeasured, "ddp").step_s->value;
  // The recorded step is what others are compared with: what changes is judged by it, and not by
  // what ddp would take.
  int changes = 0;
  for (const double times : {0.1, 2.0}) {
    const double step_s = times * ddp_s;
    const doc::Advice a = advise(recorded(step_s), cluster(10), options);
    EXPECT_EQ(a.current, "the exchange as recorded");
    EXPECT_EQ(a.confidence, doc::Confidence::unchecked);
    EXPECT_THAT(a.present, StartsWith("No strategy of linerate's is known to exchange as the job"));
    const double best_s = a.candidates.front().step_s->value;
    EXPECT_EQ(a.verdict == doc::AdviceVerdict::change, best_s < 0.98 * step_s);
    EXPECT_NEAR(a.candidates.front().over_current->value, best_s / step_s, 1e-9);
    EXPECT_THAT(a.sentence, StartsWith(a.verdict == doc::AdviceVerdict::change
                                           ? "Change the exchange as recorded to "
                                           : "Do nothing: "));
    changes += a.verdict == doc::AdviceVerdict::change;
    EXPECT_THAT(report::to_text(a, true), Not(HasSubstr("from ddp")));
    EXPECT_TRUE(a.ceilings.empty());
  }
  EXPECT_EQ(changes, 1);
}

// What the recording says stands for the job as it is, of a known strategy or of none.
TEST(Present, HasTheCeilingOfItsRecording) {
  doc::Workload w = recorded(0.1);
  w.recorded->least_s = 0.03;
  for (const bool known : {true, false}) {
    AdviseOptions options{.current_is_known = known};
    const doc::Advice a = advise(w, cluster(10), options);
    ASSERT_FALSE(a.ceilings.empty());
    const doc::Ceiling& c = a.ceilings.front();
    EXPECT_EQ(c.remedy, "infinitely fast network");
    EXPECT_EQ(c.step_s.value, 0.03);
    EXPECT_THAT(c.reason, HasSubstr("at most 70 % of the step as recorded"));
    for (const doc::Ceiling& other : a.ceilings)
      EXPECT_THAT(other.reason, testing::AnyOf(HasSubstr("as recorded"), HasSubstr("nothing")));
    options.ranks = 8;
    for (const doc::Ceiling& other : advise(w, cluster(10), options).ceilings)
      EXPECT_NE(other.remedy, c.remedy);
  }
}

// Processors carry messages while they compute: of a change only what it gains beyond all that may
// take is certain, whatever strategy and network.
TEST(Present, UnmeasuredMessagesOfProcessorsLowerTheConfidence) {
  int lowered = 0;
  for (const auto& line : plan::exchanges().lines())
    for (const double gbit : {1.0, 10.0}) {
      const AdviseOptions options = in_use(line.name);
      doc::Cluster c = measured(gbit, 0.02);
      const doc::Bounded step = *find(advised(c, options), line.name).step_s;
      doc::Workload w = recorded(step.value);
      const doc::Advice on_device = advise(w, c, options);
      w.recorded->on_cpu = true;
      const doc::Advice on_cpu = advise(w, c, options);
      EXPECT_THAT(on_cpu.notes, says("of them a message takes"));
      EXPECT_THAT(on_device.notes, Not(says("of them a message takes")));
      if (on_device.verdict != doc::AdviceVerdict::change) {
        EXPECT_EQ(on_cpu.sentence, on_device.sentence);
        continue;
      }
      const doc::Candidate& best = find(on_device, on_device.best);
      // Without late ranks the step is computation and what is exposed.
      const double hidden_s =
          on_device.one_rank_step_s + *best.communication_s - best.step_s->value;
      const bool is_sure = step.value - best.step_s->value > hidden_s;
      EXPECT_EQ(on_cpu.verdict,
                is_sure ? doc::AdviceVerdict::change : doc::AdviceVerdict::inconclusive)
          << on_cpu.sentence;
      lowered += !is_sure;
      // Measured, it is in every prediction already.
      c.contention = doc::Contention{.message_s = 1e-6};
      EXPECT_THAT(advise(w, c, options).notes, Not(says("of them a message takes")));
    }
  EXPECT_GT(lowered, 0);
  // What takes ten seconds gains more than messages may take.
  doc::Workload slow = recorded(10);
  slow.recorded->on_cpu = true;
  EXPECT_EQ(advise(slow, measured(10, 0.02), {.current_is_known = false}).verdict,
            doc::AdviceVerdict::change);
}

// ---- in PyTorch's words ----

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
