#include "linerate/advise/ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "linerate/advise/ranking.hpp"
#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

constexpr BytesPerSecond kInfinite{1e21};
constexpr const char* kNothingToSend = "10000";  // compression ratio

bool has_codec(const doc::Strategy& strategy) {
  return std::any_of(strategy.extras.begin(), strategy.extras.end(),
                     [](const doc::Component& c) { return plan::is(c, plan::Extra::codec); });
}

std::string gain_text(double step_s, double current_s) {
  const double gain = current_s > 0 ? 1 - step_s / current_s : 0;
  if (gain < 0.0005) return "gains nothing";
  return fmt::format("at most {:.1f} % of the step", 100 * gain);
}

double on_another_cluster(Evaluator& evaluator, doc::Cluster cluster, const AdviseOptions& options,
                          std::optional<BytesPerSecond> bandwidth) {
  Evaluator other(evaluator.workload(), cluster, evaluator.ranks(), evaluator.latency());
  return other.run(options.current, bandwidth).step_s.value;
}

// Tables measured on a line of unknown rate cannot be moved to another: only the latency is left.
double infinite_bandwidth(Evaluator& evaluator, const AdviseOptions& options) {
  doc::Cluster cluster = evaluator.cluster();
  if (cluster.network.bandwidth_bytes_per_s <= 0) cluster.collectives.clear();
  return on_another_cluster(evaluator, std::move(cluster), options, kInfinite);
}

// What the slowest rank computes; nothing can hide behind less.
double slowest_rank_s(const Evaluator& evaluator) {
  const double alone = evaluator.workload().one_rank_step_s();
  double slowest = alone;
  for (const doc::RankSpeed& s : evaluator.cluster().rank_speeds)
    if (s.rank >= 0 && s.rank < evaluator.ranks())
      slowest = std::max(slowest, alone * s.compute_factor + s.delay_s);
  return slowest;
}

// The lesser of the buckets in use and of a single one for everything, which pays the latency once.
double least_communication_s(Evaluator& evaluator, const Outcome& current,
                             const AdviseOptions& options) {
  doc::Strategy single{{"bulk", {}}, options.current.extras};
  if (const std::string* wire = options.current.exchange.find("wire"))
    single.exchange.options.emplace_back("wire", *wire);
  const Judged judged = judge(evaluator, single, options.bandwidth, options);
  return judged.outcome ? std::min(current.communication_s, judged.outcome->communication_s)
                        : current.communication_s;
}

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
  double step_s = 0;
};

// If none is considered, one that leaves nothing to send.
std::vector<doc::Strategy> with_codecs(const std::vector<doc::Strategy>& strategies,
                                       const doc::Strategy& current) {
  std::vector<doc::Strategy> some;
  std::copy_if(strategies.begin(), strategies.end(), std::back_inserter(some), has_codec);
  if (some.empty())
    some.push_back({current.exchange, {{std::string(plan::kCodec), {{"ratio", kNothingToSend}}}}});
  return some;
}

// Every codec once, with the exchange that makes most of it.
std::vector<FreeCodec> free_codecs(Evaluator& evaluator,
                                   const std::vector<doc::Strategy>& strategies,
                                   const AdviseOptions& options) {
  std::vector<doc::Strategy> given = with_codecs(strategies, options.current);
  std::vector<doc::Strategy> free = given;
  std::transform(free.begin(), free.end(), free.begin(), with_free_codec);
  const std::vector<Judged> all_judged = judge_all(evaluator, free, options.bandwidth, options);
  std::vector<FreeCodec> all;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const doc::Strategy& s = given[i];
    const Judged& judged = all_judged[i];
    if (!judged.outcome) continue;
    const FreeCodec f{doc::to_text({{"any", {}}, s.extras}), doc::to_text(s),
                      judged.outcome->step_s.value};
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const FreeCodec& g) { return g.codec == f.codec; });
    if (found == all.end())
      all.push_back(f);
    else if (f.step_s < found->step_s)
      *found = f;
  }
  return all;
}

}  // namespace

std::size_t most_ceiling_runs(const std::vector<doc::Strategy>& strategies,
                              const doc::Strategy& current) {
  return 1 + with_codecs(strategies, current).size();
}

std::vector<doc::Ceiling> ceilings(Evaluator& evaluator, const Outcome& current,
                                   const std::vector<doc::Strategy>& strategies,
                                   const AdviseOptions& options) {
  std::vector<doc::Ceiling> all;
  const double now = current.step_s.value;
  const auto add = [&](const std::string& remedy, double step_s, const std::string& what) {
    all.push_back({remedy, step_s, fmt::format("{}: {}.", what, gain_text(step_s, now))});
  };
  add("infinite bandwidth", infinite_bandwidth(evaluator, options),
      "a network without a limit, latency as it is");
  const double busy = slowest_rank_s(evaluator);
  const double sent = least_communication_s(evaluator, current, options);
  add("perfect overlap", std::max(busy, sent),
      fmt::format("all {} of communication behind {} of computation{}, or the reverse",
                  format_time(sent), format_time(busy),
                  evaluator.cluster().rank_speeds.empty() ? "" : " of the slowest rank"));
  if (options.framework == Framework::linerate)
    for (const FreeCodec& f : free_codecs(evaluator, strategies, options))
      add("zero encode cost", f.step_s,
          f.strategy + " with its codec for nothing, steps to target not counted");
  doc::Cluster cluster = evaluator.cluster();
  if (!cluster.rank_speeds.empty()) {
    cluster.rank_speeds.clear();
    add("no late ranks", on_another_cluster(evaluator, cluster, options, options.bandwidth),
        "every rank as fast as the Workload says");
  }
  cluster = evaluator.cluster();
  if (cluster.contention) {
    cluster.contention.reset();
    add("no contention", on_another_cluster(evaluator, cluster, options, options.bandwidth),
        "computation and communication that do not slow each other down");
  }
  return all;
}

}  // namespace linerate::advise
