#include "linerate/advise/advise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/advise/ceilings.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/advise/search_space.hpp"
#include "linerate/advise/turning_points.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

constexpr double kBitsPerByte = 8;

std::string against(double value, double reference, const std::string& name) {
  const double change = reference > 0 ? value / reference - 1 : 0;
  if (std::abs(change) < 0.0005) return "as long as " + name;
  return fmt::format("{:.1f} % {} than {}", 100 * std::abs(change),
                     change < 0 ? "shorter" : "longer", name);
}

// `dense`: the best strategy that takes the uncompressed steps, which a lossy one has to beat.
std::string convergence_clause(const doc::Candidate& c, const doc::Candidate& dense,
                               const AdviseOptions& options) {
  const doc::Strategy strategy = doc::parse_strategy(c.strategy);
  if (!changes_convergence(strategy)) return "";
  const StepsToTarget* known = find_steps(options.steps, strategy);
  if (known && known->missed > 0)
    return fmt::format("; not ranked, {} of its runs missed the target", known->missed);
  if (c.steps_to_target)
    return fmt::format("; {:.3g} x the steps ({})", c.steps_to_target->value, known->source);
  const double allowed = dense.step_s->value / c.step_s->value;
  if (allowed <= 1) return "; it changes convergence and has no shorter step: never worth it";
  return fmt::format(
      "; not ranked, it changes convergence: worth it only below {:.3g} x the steps of {}", allowed,
      dense.strategy);
}

// One sentence from the simulated step: how much is sent, how much of it shows, and the difference.
std::string reason_of(const Judged& j, const doc::Candidate& current, const doc::Candidate& dense,
                      double one_rank_s, const AdviseOptions& options) {
  const doc::Candidate& c = j.candidate;
  if (c.standing == doc::Standing::failed) return c.reason;
  const std::size_t buckets = j.outcome->plan.variants.back().buckets.size();
  std::string text =
      fmt::format("{} exchange{}, {} of {} of communication exposed", buckets,
                  buckets == 1 ? "" : "s", format_time(std::max(0.0, c.step_s->value - one_rank_s)),
                  format_time(j.outcome->communication_s));
  if (c.strategy != current.strategy)
    text += ", step " + against(c.step_s->value, current.step_s->value, current.strategy);
  if (c.standing == doc::Standing::does_not_fit)
    return text + "; out, it needs " + format_size(c.memory_bytes) + " a rank";
  return text + convergence_clause(c, dense, options) + ".";
}

std::string sentence_of(const doc::Advice& a, const doc::Candidate& current,
                        const doc::Candidate& fastest, const doc::Candidate& best) {
  const double gain = 1 - fastest.target_s->value / current.target_s->value;
  switch (a.verdict) {
    case doc::AdviceVerdict::do_nothing:
      if (fastest.strategy == current.strategy)
        return fmt::format("Do nothing: {} is the fastest of what was searched.", a.current);
      return fmt::format("Do nothing: {} would gain {:.1f} %, which is {}.", fastest.strategy,
                         100 * std::max(0.0, gain),
                         fastest.target_s->high
                             ? "not worth a change or within the error of the prediction"
                             : "not worth a change");
    case doc::AdviceVerdict::inconclusive:
      return fmt::format(
          "Inconclusive: {} is predicted {:.1f} % faster than {}, but their intervals overlap; "
          "calibrate more closely or measure both.",
          fastest.strategy, 100 * gain, a.current);
    case doc::AdviceVerdict::change:
      break;
  }
  return fmt::format("Change {} to {}: {} instead of {}, {:.1f} % less time{}.", a.current,
                     best.strategy, format_time(best.target_s->value),
                     format_time(current.target_s->value),
                     100 * (1 - best.target_s->value / current.target_s->value),
                     best.steps_to_target ? " to the target" : "");
}

const doc::Candidate& named(const doc::Advice& a, const std::string& strategy) {
  const auto found = std::find_if(a.candidates.begin(), a.candidates.end(),
                                  [&](const doc::Candidate& c) { return c.strategy == strategy; });
  LINERATE_CHECK(found != a.candidates.end(), strategy);
  return *found;
}

// Verdict, sentence and the strategy to use. `simplest`: winner() at this bandwidth.
void conclude(doc::Advice& a, const doc::Candidate& in_use, const std::string& simplest,
              double least_gain) {
  const doc::Candidate& fastest = a.candidates.front();
  if (fastest.standing != doc::Standing::ranked)
    throw UsageError(fmt::format("--memory: no strategy fits; {} needs {} a rank", a.current,
                                 format_size(in_use.memory_bytes)));
  if (in_use.standing != doc::Standing::ranked) {
    a.verdict = doc::AdviceVerdict::change;
    a.best = fastest.strategy;
    a.sentence = fmt::format("Change {} to {}: {} does not fit into the memory given.", a.current,
                             a.best, a.current);
    return;
  }
  a.verdict = verdict_of(in_use, fastest, least_gain);
  a.best = a.verdict == doc::AdviceVerdict::change       ? simplest
           : a.verdict == doc::AdviceVerdict::do_nothing ? a.current
                                                         : fastest.strategy;
  a.sentence = sentence_of(a, in_use, fastest, named(a, a.best));
}

void add_notes(doc::Advice& a, const doc::Workload& workload, const AdviseOptions& options,
               const doc::Cluster& cluster) {
  if (!a.candidates.front().step_s->low)
    a.notes.push_back(
        "The Cluster states no measured error, so there are no intervals: differences of a few "
        "percent mean nothing. Calibrate to get them.");
  if (std::any_of(a.candidates.begin(), a.candidates.end(),
                  [](const auto& c) { return c.standing == doc::Standing::unranked; }))
    a.notes.push_back(
        "Strategies that change convergence are ranked only with --steps-to-target, by step time x "
        "steps; nothing here says how many steps they take.");
  if (options.memory_bytes || cluster.memory_bytes)
    a.notes.push_back(
        "Memory counts buckets, payloads, error memory and factors; parameters, activations and "
        "optimizer state are yours to subtract.");
  if (!workload.step_s && !workload.forward_s)
    a.notes.push_back("The Workload knows no forward pass: steps are backward and exchange alone.");
}

using JudgedList = std::vector<Judged>;  // best first

// What a codec has to beat; the strategy in use where nothing uncompressed fits.
const doc::Candidate& best_uncompressed(const JudgedList& judged, const doc::Candidate& in_use) {
  for (const Judged& j : judged)
    if (j.candidate.standing == doc::Standing::ranked &&
        !changes_convergence(doc::parse_strategy(j.candidate.strategy)))
      return j.candidate;
  return in_use;
}

void check(const doc::Workload& workload, const AdviseOptions& options, int ranks) {
  if (ranks < 1) throw UsageError("how many ranks? give --ranks");
  if (!(options.least_gain >= 0 && options.least_gain < 1))
    throw UsageError("--least-gain: expected 0 to 1");
  if (changes_convergence(options.current) && !find_steps(options.steps, options.current))
    throw UsageError(fmt::format(
        "--current {}: it changes convergence; say with --steps-to-target how many steps it takes "
        "against an uncompressed run",
        doc::to_text(options.current)));
  if (workload.gradients.empty())
    throw InputError(workload.name.empty() ? "workload" : workload.name,
                     "has no gradients: nothing to exchange");
}

}  // namespace

doc::Advice advise(const doc::Workload& workload, const doc::Cluster& cluster,
                   const AdviseOptions& options) {
  const int ranks = options.ranks > 0 ? options.ranks : cluster.ranks;
  check(workload, options, ranks);
  Evaluator evaluator(workload, cluster, ranks, options.latency);
  SearchSpace space = search_space(options.current, options.codecs, options.more, cluster);

  JudgedList judged;
  for (const doc::Strategy& s : space.strategies)
    judged.push_back(judge(evaluator, s, options.bandwidth, options));
  if (!judged.front().outcome) throw UsageError(judged.front().candidate.reason);
  const Judged in_use = judged.front();  // search_space puts it first
  std::stable_sort(judged.begin(), judged.end(), [](const Judged& a, const Judged& b) {
    return before(a.candidate, b.candidate);
  });
  const doc::Candidate dense = best_uncompressed(judged, in_use.candidate);

  doc::Advice a;
  a.workload = workload.name, a.cluster = cluster.name, a.ranks = ranks;
  a.bandwidth_bit_per_s = kBitsPerByte * (options.bandwidth ? options.bandwidth->value
                                                            : evaluator.network_bytes_per_s());
  a.one_rank_step_s = workload.one_rank_step_s();
  a.current = in_use.candidate.strategy;
  a.notes = std::move(space.notes);
  for (Judged& j : judged) {
    j.candidate.reason = reason_of(j, in_use.candidate, dense, a.one_rank_step_s, options);
    a.candidates.push_back(j.candidate);
  }
  conclude(a, in_use.candidate, winner(evaluator, space.strategies, options.bandwidth, options),
           options.least_gain);
  a.ceilings = ceilings(evaluator, *in_use.outcome, space.strategies, options);
  a.turning_points = bandwidth_turning_points(evaluator, space.strategies, options);
  for (doc::TurningPoint& t :
       ratio_turning_points(evaluator, space.strategies, dense, options, a.notes))
    a.turning_points.push_back(std::move(t));
  add_notes(a, workload, options, cluster);
  return a;
}

}  // namespace linerate::advise
