// What each remedy could give at best. Every ceiling is one run of the Evaluator with something
// made free: an infinite bandwidth, encoding for nothing, ranks that are not late, no contention.
// Perfect overlap has no such run. It is the longer of the slowest rank's computation and the least
// network time. Collectives for which computation waits in any case come on top.
//
// An example: ranks compute 100 ms, the network takes 130 ms for gradients, and computation waits 5
// ms for other collectives. Perfect overlap is max(100, 130) + 5 = 135 ms: a better overlap alone
// cannot help below that.
#include "linerate/advise/notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "linerate/advise/ranking.hpp"
#include "linerate/core/text.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::advise {
namespace {

constexpr BytesPerSecond kInfinite{1e21};
constexpr const char* kNothingToSend = "10000";  // compression ratio

bool has_codec(const doc::Strategy& strategy) {
  return std::any_of(strategy.extras.begin(), strategy.extras.end(),
                     [](const doc::Component& c) { return plan::is(c, plan::Extra::codec); });
}

doc::Bounded on_another_cluster(Evaluator& evaluator, doc::Cluster cluster,
                                std::optional<BytesPerSecond> bandwidth) {
  Evaluator other(evaluator.workload(), cluster, evaluator.ranks(), evaluator.options());
  return other.run(evaluator.options().current, bandwidth).step_s;
}

// Without a known line, measured tables cannot be moved to another bandwidth. They are dropped, and
// only the latency is left.
doc::Bounded infinite_bandwidth(Evaluator& evaluator) {
  doc::Cluster cluster = evaluator.cluster();
  if (cluster.network.bandwidth_bytes_per_s <= 0) cluster.collectives.clear();
  return on_another_cluster(evaluator, std::move(cluster), kInfinite);
}

double longer(double a, double b) { return std::max(a, b); }
double shorter(double a, double b) { return std::min(a, b); }

// The least time that the exchange needs on the network. It is that of the buckets in use, or of
// one message of everything, which pays the latency once.
sim::NetworkTime least_network_time(Evaluator& evaluator, const Outcome& current) {
  const AdviseOptions& options = evaluator.options();
  doc::Strategy single{{"bulk", {}}, options.current.extras};
  if (const std::string* wire = options.current.exchange.find("wire"))
    single.exchange.options.emplace_back("wire", *wire);
  const cost::CostModel model = evaluator.model();
  sim::NetworkTime least = sim::network_time(current.plan, model);
  if (const Judged judged = judge(evaluator, single, options.bandwidth); judged.outcome)
    least.overlaps_s = by_ends(least.overlaps_s,
                               sim::network_time(judged.outcome->plan, model).overlaps_s, shorter);
  return least;
}

/// The gain of a remedy over the step in use, as that step was measured or else predicted. Both are
/// taken at the same end of their intervals, and the largest gain counts.
struct AtMost {
  const doc::RecordedStep* measured = nullptr;
  doc::Bounded predicted_s = {};

  double share(const doc::Bounded& step_s) const {
    const auto gain = [](double with_s, double now_s) {
      return now_s > 0 ? 1 - with_s / now_s : 0;
    };
    if (measured) return gain(step_s.low_or_value(), measured->step_s);
    return std::max({gain(step_s.value, predicted_s.value),
                     gain(step_s.low_or_value(), predicted_s.low_or_value()),
                     gain(step_s.high_or_value(), predicted_s.high_or_value())});
  }
  std::string in_words(const doc::Bounded& step_s) const {
    const double most = share(step_s);
    if (most < 0.0005) return "gains nothing";
    return fmt::format("at most {} of the step{}", format_percent(most),
                       measured ? " as recorded" : "");
  }
};

// Makes encoding and decoding free; the ratio and the kind of exchange stay.
doc::Strategy with_free_codec(doc::Strategy strategy) {
  for (doc::Component& c : strategy.extras)
    if (plan::is(c, plan::Extra::codec))
      std::erase_if(c.options, [](const auto& option) {
        return option.first == "encode" || option.first == "decode" || option.first == "name";
      });
  return strategy;
}

struct FreeCodec {
  std::string codec;
  std::string strategy;  // the exchange that makes most of it
  doc::Bounded step_s;
};

// The strategies with a codec. If there is none, a codec of ratio 10,000, which leaves nothing to
// send.
std::vector<doc::Strategy> with_codecs(const std::vector<doc::Strategy>& strategies,
                                       const doc::Strategy& current) {
  std::vector<doc::Strategy> some;
  std::ranges::copy_if(strategies, std::back_inserter(some), has_codec);
  if (some.empty())
    some.push_back({current.exchange, {{std::string(plan::kCodec), {{"ratio", kNothingToSend}}}}});
  return some;
}

// Every codec once, with the exchange that makes most of it. All are judged with free coding.
std::vector<FreeCodec> free_codecs(Evaluator& evaluator,
                                   const std::vector<doc::Strategy>& strategies) {
  std::vector<doc::Strategy> given = with_codecs(strategies, evaluator.options().current);
  std::vector<doc::Strategy> free = given;
  std::ranges::transform(free, free.begin(), with_free_codec);
  const std::vector<Judged> all_judged = judge_all(evaluator, free, evaluator.options().bandwidth);
  std::vector<FreeCodec> all;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const doc::Strategy& s = given[i];
    const Judged& judged = all_judged[i];
    if (!judged.outcome) continue;
    const FreeCodec f{doc::to_text({{"any", {}}, s.extras}), doc::to_text(s),
                      judged.outcome->step_s};
    const auto found = std::ranges::find(all, f.codec, &FreeCodec::codec);
    if (found == all.end())
      all.push_back(f);
    else if (f.step_s.value < found->step_s.value)
      *found = f;
  }
  return all;
}

// Ranks that are slower than the others, and what the step would be without their lateness. They
// are taken out one after the other, the slowest first. An example: rank 3 is 20 ms late and rank 1
// is 15 ms. Alone, rank 3 at full speed saves 5 ms, as rank 1 holds the step up then. Both together
// save 20 ms. So the list says what each gains with those above it.

constexpr std::size_t kMostNamed = 4;

// Late by computing slower or by a fixed delay. The slowest four: a longer list is a job that is
// slow everywhere.
std::vector<doc::Straggler> slow_ranks(const Evaluator& evaluator) {
  const double alone = evaluator.workload().one_rank_step_s();
  std::vector<doc::Straggler> slow;
  for (const doc::RankSpeed& s : evaluator.cluster().rank_speeds) {
    const double late = alone * (s.compute_factor - 1) + s.delay_s;
    if (late > 0 && s.rank >= 0 && s.rank < evaluator.ranks())
      slow.push_back({s.rank, late, 0, ""});
  }
  std::ranges::stable_sort(slow, std::greater(), &doc::Straggler::late_s);
  if (slow.size() > kMostNamed) slow.resize(kMostNamed);
  return slow;
}

std::string names_of(const std::vector<doc::Straggler>& slow) {
  std::vector<std::string> ranks;
  for (const doc::Straggler& s : slow) ranks.push_back(std::to_string(s.rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(ranks, ", ");
}

}  // namespace

std::size_t most_ceiling_runs(const std::vector<doc::Strategy>& strategies,
                              const doc::Strategy& current) {
  return 1 + with_codecs(strategies, current).size();
}

std::optional<doc::Ceiling> recorded_ceiling(const Evaluator& evaluator) {
  const doc::RecordedStep* measured = measured_step(evaluator);
  if (!measured || !measured->least_s) return std::nullopt;
  const doc::Bounded step_s{*measured->least_s};
  return doc::Ceiling{"infinitely fast network", step_s,
                      fmt::format("data takes no time: {}.", AtMost{measured}.in_words(step_s))};
}

std::vector<doc::Ceiling> ceilings(Evaluator& evaluator, const Outcome& current,
                                   const std::vector<doc::Strategy>& strategies) {
  const AdviseOptions& options = evaluator.options();
  std::vector<doc::Ceiling> all;
  if (const auto recorded = recorded_ceiling(evaluator)) all.push_back(*recorded);
  const AtMost at_most{measured_step(evaluator), current.step_s};
  const auto add = [&](const std::string& remedy, const doc::Bounded& step_s,
                       const std::string& what) {
    all.push_back({remedy, step_s, fmt::format("{}: {}.", what, at_most.in_words(step_s))});
  };
  add("infinite bandwidth", infinite_bandwidth(evaluator),
      "bandwidth without a limit, latency as it is");
  const doc::Bounded busy = slowest_rank_s(evaluator);
  const sim::NetworkTime sent = least_network_time(evaluator, current);
  const doc::Bounded overlapped = by_ends(busy, sent.overlaps_s, longer);
  const double waited_s = sent.waited_for_s.value;
  add("perfect overlap", by_ends(overlapped, sent.waited_for_s, std::plus<double>()),
      fmt::format("all {} of communication during {} of computation{}, or the reverse{}",
                  format_time(sent.overlaps_s.value), format_time(busy.value),
                  evaluator.cluster().rank_speeds.empty() ? "" : " of the slowest rank",
                  waited_s > 0 ? fmt::format(", and {} for which computation waits in any case",
                                             format_time(waited_s))
                               : ""));
  if (options.framework == Framework::linerate)
    for (const FreeCodec& f : free_codecs(evaluator, strategies))
      add("zero encode cost", f.step_s,
          f.strategy + " with coding that takes no time; steps to the target are not counted");
  doc::Cluster cluster = evaluator.cluster();
  if (!cluster.rank_speeds.empty()) {
    cluster.rank_speeds.clear();
    add("no late ranks", on_another_cluster(evaluator, cluster, options.bandwidth),
        "every rank is as fast as the Workload says");
  }
  cluster = evaluator.cluster();
  if (cluster.contention) {
    cluster.contention.reset();
    add("no contention", on_another_cluster(evaluator, cluster, options.bandwidth),
        "computation and communication do not slow each other down");
  }
  return all;
}

std::vector<doc::Straggler> stragglers(Evaluator& evaluator, const Outcome& current) {
  std::vector<doc::Straggler> slow = slow_ranks(evaluator);
  doc::Cluster cluster = evaluator.cluster();
  for (std::size_t i = 0; i < slow.size(); ++i) {
    std::erase_if(cluster.rank_speeds,
                  [&](const doc::RankSpeed& s) { return s.rank == slow[i].rank; });
    slow[i].step_s = on_another_cluster(evaluator, cluster, evaluator.options().bandwidth).value;
    const double gain = 1 - slow[i].step_s / current.step_s.value;
    slow[i].reason = fmt::format(
        "takes {} longer for itself in each step than the Workload says; without that{} the step "
        "is {} shorter.",
        format_time(slow[i].late_s), i == 0 ? "" : " and those above",
        format_percent(std::max(0.0, gain)));
  }
  return slow;
}

// If mending ranks gains more than any strategy, that is the first sentence of the advice.
void lead_with_stragglers(doc::Advice& a, const doc::Candidate& current, double least_gain) {
  if (a.stragglers.empty() || !current.target_s) return;
  const double now = current.step_s->value;
  const double without = a.stragglers.back().step_s;
  const doc::Candidate& fastest = a.candidates.front();
  const double by_strategy =
      fastest.target_s ? 1 - fastest.target_s->value / current.target_s->value : 0;
  const double gain = 1 - without / now;
  if (gain < least_gain || gain <= by_strategy) return;
  a.sentence = fmt::format(
      "Mend {} first. With ranks of equal speed {} {} {} instead of {}, {} less time. No "
      "strategy gains as much. {}",
      names_of(a.stragglers), a.current,
      a.confidence == doc::Confidence::low ? "may take" : "takes", format_time(without),
      format_time(now), format_percent(gain), a.sentence);
}

}  // namespace linerate::advise
