#include "linerate/advise/ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/advise/ranking.hpp"
#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

constexpr BytesPerSecond kInfinite{1e21};

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

// Encoding and decoding for nothing; the ratio and the kind of exchange stay.
doc::Strategy with_free_codec(doc::Strategy strategy) {
  for (doc::Component& c : strategy.extras)
    if (c.name == "codec")
      std::erase_if(c.options, [](const auto& option) {
        return option.first == "encode" || option.first == "decode" || option.first == "name";
      });
  return strategy;
}

}  // namespace

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
  const double busy = evaluator.workload().one_rank_step_s();
  add("perfect overlap", std::max(busy, current.communication_s),
      fmt::format("all {} of communication behind {} of computation, or the reverse",
                  format_time(current.communication_s), format_time(busy)));
  for (const doc::Strategy& s : strategies) {
    const doc::Strategy free = with_free_codec(s);
    if (doc::to_text(free) == doc::to_text(s)) continue;
    const Judged judged = judge(evaluator, free, options.bandwidth, options);
    if (judged.outcome)
      add("zero encode cost", judged.outcome->step_s.value,
          doc::to_text(s) + " with its codec for nothing, steps to target not counted");
  }
  doc::Cluster cluster = evaluator.cluster();
  if (!cluster.rank_speeds.empty()) {
    cluster.rank_speeds.clear();
    add("no stragglers", on_another_cluster(evaluator, cluster, options, options.bandwidth),
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
