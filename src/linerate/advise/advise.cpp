// The search of `linerate advise`. Every strategy of the search space is planned and simulated on
// the Cluster and ranked (ranking.hpp). The strategy in use is one of them. The
// Advice then says, in this order: 1. the verdict: change, do nothing, or inconclusive, with the
// strategy to use (conclude); 2. ceilings: what the best possible form of each remedy would give
// (ceilings.cpp); 3. turning points: the bandwidths at which the answer changes (ranking.hpp); 4.
// late ranks, and notes on what was not known.
//
// A job may have been recorded under an exchange that no strategy of linerate's does. Then the
// recorded step stands in for the strategy in use, and nothing simulates that strategy.
#include "linerate/advise/advise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "linerate/advise/notes.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/advise/search_space.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::advise {
namespace {

constexpr double kRounding = 1 + 1e-9;           // of sums of the same times in another order
constexpr double kLeastUsefulAllowance = 1.005;  // below, "x 1 the steps" says nothing

// "The step is 3.2 % shorter than with ddp."; changes below .05 % are none.
std::string against(double value, double reference, const std::string& name) {
  const double change = reference > 0 ? value / reference - 1 : 0;
  if (std::abs(change) < 0.0005) return fmt::format(" The step is as long as with {}.", name);
  return fmt::format(" The step is {} {} than with {}.", format_percent(std::abs(change)),
                     change < 0 ? "shorter" : "longer", name);
}

// What a reason says about steps to the target. `dense` is the best strategy that takes the steps
// of an uncompressed run; a strategy that changes convergence has to beat it. An example: a
// compressed step of 80 ms against 100 ms pays only below 1.25 times the steps.
std::string about_steps(const Judged& j, const doc::Candidate& dense,
                        const AdviseOptions& options) {
  const doc::Candidate& c = j.candidate;
  if (!j.changes_convergence()) return "";
  const StepsToTarget* known = find_steps(options.steps, j.strategy);
  if (known && known->missed > 0)
    return fmt::format(" It is not ranked, because {} of its runs missed the target.",
                       known->missed);
  if (c.steps_to_target)
    return fmt::format(" It takes {:.3g} x the steps ({}).", c.steps_to_target->value,
                       known->source);
  const double allowed = dense.step_s->value / c.step_s->value;
  const std::string text = " It is not ranked, because it changes convergence.";
  if (allowed < kLeastUsefulAllowance)
    return text + fmt::format(" Its step is no shorter than that of {}.", dense.strategy);
  return text + fmt::format(" It pays only with less than {:.3g} x the steps of {}.", allowed,
                            dense.strategy);
}

// Why ranks may wait for longer than transfers take, in words.
std::string why_longer(const doc::Cluster& cluster) {
  std::vector<std::string> reasons;
  if (cluster.contention && cluster.contention->any()) reasons.push_back("contention");
  if (!cluster.rank_speeds.empty()) reasons.push_back("waits for late ranks");
  if (cluster.start_delay_s > 0) reasons.push_back("the delay before collectives");
  return join(reasons, reasons.size() > 2 ? ", " : " and ");
}

// How much is sent, and how much of it shows. `beyond_s` is the step's time beyond one rank's.
std::string exposure_of(const Outcome& outcome, double exposed_s, double beyond_s,
                        const doc::Cluster& cluster) {
  const doc::TaskGraph& steady = outcome.plan.variants.back();
  const std::size_t buckets = steady.buckets().size();
  std::string text = fmt::format("{} exchange{}, ", buckets, buckets == 1 ? "" : "s");
  const std::string exposed = format_time(exposed_s);
  const std::string communication = format_time(outcome.communication_s);
  if (const std::string why = why_longer(cluster);
      exposed_s > outcome.communication_s * kRounding && !why.empty())
    text += fmt::format("{} of communication, {} exposed with {}", communication, exposed, why);
  else
    text += fmt::format("{} of {} of communication exposed", exposed, communication);
  text += ".";
  if (sim::has_coding(outcome.plan))
    text += fmt::format(" With coding the step is {} longer than one rank's.",
                        format_time(std::max(0.0, beyond_s)));
  return text;
}

// Facts from the simulated step, a sentence each: how much is sent, how much of it shows, and the
// difference.
std::string reason_of(const Judged& j, const doc::Candidate& current, const doc::Candidate& dense,
                      double one_rank_s, const AdviseOptions& options,
                      const doc::Cluster& cluster) {
  const doc::Candidate& c = j.candidate;
  if (c.standing == doc::Standing::failed) return c.reason;
  std::string text =
      exposure_of(*j.outcome, *c.exposed_communication_s, c.step_s->value - one_rank_s, cluster);
  if (c.strategy != current.strategy)
    text += against(c.step_s->value, current.step_s->value, current.strategy);
  if (c.standing == doc::Standing::does_not_fit)
    text += fmt::format(" It is out, because it needs {} a rank.", format_size(c.memory_bytes));
  else
    text += about_steps(j, dense, options);
  if (j.coding_is_bound())
    text += " Its coding counts as a cast, the least that it can take. The step may be longer.";
  if (j.outcome->crowded_s)
    text += fmt::format(" Ranks share cores, so coding may make the step last {}.",
                        format_time(*j.outcome->crowded_s));
  if (!c.trains)
    text += fmt::format(" It is only simulated, because {}.", j.outcome->traits.why_not_train);
  return text;
}

std::string sentence_of(const doc::Advice& a, const doc::Candidate& current,
                        const doc::Candidate& fastest, const doc::Candidate& best,
                        double least_gain) {
  const double gain = 1 - fastest.target_s->value / current.target_s->value;
  switch (a.verdict) {
    case doc::AdviceVerdict::do_nothing:
      if (fastest.strategy == current.strategy)
        return fmt::format("Do nothing: {} is the fastest of what was searched.", a.current);
      return fmt::format("Do nothing: {} would gain {}, less than the {:g} % worth a change.",
                         fastest.strategy, format_percent(std::max(0.0, gain)), 100 * least_gain);
    case doc::AdviceVerdict::inconclusive:
      if (a.confidence == doc::Confidence::low)
        return fmt::format(
            "Inconclusive: {} may be faster. If the predictions hold, it saves {} of {}'s "
            "step. Measure it, and keep what runs until then.",
            fastest.strategy, format_percent(gain), a.current);
      return fmt::format(
          "Inconclusive: {} is predicted {} faster than {}. Within what is known of costs "
          "and steps it may also take {} longer. Calibrate more closely or measure both, and "
          "keep {} until then.",
          fastest.strategy, format_percent(gain), a.current,
          format_percent(over(fastest, current).high_or_value() - 1), a.current);
    case doc::AdviceVerdict::change:
      break;
  }
  return fmt::format("Change {} to {}: {} instead of {}, {} less time{}.", a.current, best.strategy,
                     format_time(best.target_s->value), format_time(current.target_s->value),
                     format_percent(1 - best.target_s->value / current.target_s->value),
                     best.steps_to_target ? " to the target" : "");
}

const doc::Candidate& named(const doc::Advice& a, const std::string& strategy) {
  const auto found = std::ranges::find(a.candidates, strategy, &doc::Candidate::strategy);
  LINERATE_CHECK(found != a.candidates.end(), strategy);
  return *found;
}

// Makes the verdict inconclusive if the gain is smaller than what unmeasured messages may take.
// Nothing is advised as certain then, and the sentence says what to measure.
bool lower_voice(doc::Advice& a, const doc::Candidate& in_use, const Evaluator& evaluator) {
  const doc::Candidate& best = named(a, a.best);
  const std::optional<double> messages_s = unmeasured_messages_s(best, evaluator);
  if (!messages_s || in_use.step_s->value - best.step_s->value > *messages_s) return false;
  a.verdict = doc::AdviceVerdict::inconclusive;
  a.sentence = fmt::format(
      "Inconclusive: {} is predicted {} faster than {}, but its messages may use up that "
      "gain. They may take up to {} of the processors, which was not measured here. Measure them "
      "(linerate calibrate on the job's ranks) or both steps, and keep {} until then.",
      best.strategy, format_percent(1 - best.target_s->value / in_use.target_s->value), a.current,
      format_time(*messages_s), a.current);
  return true;
}

// Sets verdict, sentence and the strategy to use. `simplest` is winner() at this bandwidth: the
// first strategy of the search order that is about as good as the best. It is advised only if the
// change to it is as sure as the change to the fastest. Three ends may come first: nothing fits
// into the memory, the strategy in use does not fit, or its runs missed the target.
void conclude(doc::Advice& a, const doc::Candidate& in_use, const std::string& simplest,
              double least_gain, const Evaluator& evaluator) {
  const doc::Candidate& fastest = a.candidates.front();
  if (fastest.standing != doc::Standing::ranked)
    throw UsageError(fmt::format(
        "--memory: no strategy fits; {} needs {} a rank; allow more memory, or compress less",
        a.current, format_size(in_use.memory_bytes)));
  if (in_use.standing != doc::Standing::ranked) {
    a.verdict = doc::AdviceVerdict::change;
    a.best = fastest.strategy;
    a.sentence = fmt::format("Change {} to {}: {} {}.", a.current, a.best, a.current,
                             in_use.standing == doc::Standing::does_not_fit
                                 ? "does not fit into the memory given"
                                 : "missed the target");
    return;
  }
  a.verdict = verdict_of(in_use, fastest, least_gain);
  if (a.verdict == doc::AdviceVerdict::change && a.confidence == doc::Confidence::low)
    a.verdict = doc::AdviceVerdict::inconclusive;
  const bool change = a.verdict == doc::AdviceVerdict::change;
  // Of one that is no strategy, the simplest may not be clearly better.
  const bool is_sure = change && verdict_of(in_use, named(a, simplest), least_gain) == a.verdict;
  a.best = is_sure                                       ? simplest
           : a.verdict == doc::AdviceVerdict::do_nothing ? a.current
                                                         : fastest.strategy;
  if (change && lower_voice(a, in_use, evaluator)) return;
  a.sentence = sentence_of(a, in_use, fastest, change ? named(a, a.best) : fastest, least_gain);
}

using JudgedList = std::vector<Judged>;  // best first

// A recommendation whose price of coding is only a bound from below says so in the same breath.
void say_bound(doc::Advice& a, const JudgedList& judged) {
  if (a.verdict == doc::AdviceVerdict::do_nothing) return;
  for (const Judged& j : judged)
    if (j.candidate.strategy == a.best && j.coding_is_bound())
      a.sentence +=
          " Its coding is only known to take at least as long as a cast. Measure it before the "
          "change (linerate calibrate --codecs, or record a run that uses it).";
}

// The strategy that a codec has to beat; the strategy in use if nothing uncompressed fits.
const doc::Candidate& best_uncompressed(const JudgedList& judged, const doc::Candidate& in_use) {
  for (const Judged& j : judged)
    if (j.candidate.standing == doc::Standing::ranked && !j.changes_convergence())
      return j.candidate;
  return in_use;
}

void check(const doc::Workload& workload, const AdviseOptions& options, int ranks) {
  if (ranks < 1) throw UsageError("the number of ranks is not known; give --ranks");
  if (!(options.least_gain >= 0 && options.least_gain < 1))
    throw UsageError("--least-gain: expected 0 to 1, such as 0.02 for 2 %");
  plan::require_gradients(workload);
}

/// Strategies that send the same numbers in other messages.
bool compress_alike(const doc::Strategy& a, const doc::Strategy& b) {
  const std::string *wire = a.exchange.find("wire"), *other = b.exchange.find("wire");
  return (wire ? *wire : "") == (other ? *other : "") && a.extras == b.extras;
}

// The strategy in use is used for training. So if nothing says how many steps its compression
// takes, they count as those of an uncompressed run, and a note says so. The same holds for
// strategies that send the same numbers in other messages.
AdviseOptions with_steps_of_current(AdviseOptions options,
                                    const std::vector<doc::Strategy>& strategies,
                                    std::vector<std::string>& notes) {
  const doc::Strategy& current = options.current;
  if (!plan::traits_of(current).changes_convergence || find_steps(options.steps, current))
    return options;
  for (const doc::Strategy& s : strategies)
    if (compress_alike(s, current) && !find_steps(options.steps, s))
      options.steps.push_back({s, false, {1}, 0, "taken as 1, as the strategy in use"});
  notes.push_back(
      fmt::format("{} is in use and changes convergence, and nothing says how many steps it takes. "
                  "Whatever sends the same therefore counts as 1 x the steps of an uncompressed "
                  "run. --steps-to-target \"{}=RATIO\" gives another number.",
                  doc::to_text(current), doc::to_text(current)));
  return options;
}

// Advice leaves out an exchange that this job has tried and found slower, whatever is predicted.
// The first strategy is the one in use and stays.
void leave_out(const doc::Strategy& tried, SearchSpace& space) {
  std::erase_if(space.strategies, [&](const doc::Strategy& s) {
    return &s != &space.strategies.front() && s.exchange.name == tried.exchange.name;
  });
  space.notes.push_back(
      fmt::format("Not considered: {}. This job has tried it in turn with the strategy in use, and "
                  "it was slower.",
                  tried.exchange.name));
}

bool is_asked(const Judged& judged, const std::vector<doc::Strategy>& asked) {
  return std::ranges::any_of(
      asked, [&](const doc::Strategy& s) { return doc::to_text(s) == judged.candidate.strategy; });
}

// The strategy in use, with which the others are compared.
Judged judge_current(Evaluator& evaluator) {
  Judged judged = judge(evaluator, evaluator.options().current, evaluator.options().bandwidth);
  if (!judged.outcome) throw UsageError(judged.candidate.reason);
  if (!(judged.candidate.step_s->value > 0))
    throw InputError(evaluator.workload().name,
                     "takes no time at all, so no change can be judged; expected forward_s, "
                     "backward_s or step_s above 0");
  return judged;
}

// In search order, which has the one in use first.
JudgedList judge_space(Evaluator& evaluator, const Judged& in_use,
                       const std::vector<doc::Strategy>& strategies) {
  JudgedList judged{in_use};
  for (Judged& j : judge_all(evaluator, {strategies.begin() + 1, strategies.end()},
                             evaluator.options().bandwidth))
    judged.push_back(std::move(j));
  return judged;
}

void set_exposed(const Evaluator& evaluator, JudgedList& judged) {
  side_by_side(judged.size(), evaluator.workers(), [&](std::size_t i, std::size_t) {
    Judged& j = judged[i];
    if (j.outcome)
      j.candidate.exposed_communication_s =
          sim::exposed_communication_s(j.outcome->plan, evaluator.model());
  });
}

}  // namespace

doc::Advice advise(const doc::Workload& workload, const doc::Cluster& given,
                   const AdviseOptions& asked) {
  validate(workload);
  validate(given);
  const doc::Cluster cluster = plan::with_known_codecs(given);
  const int ranks = asked.ranks > 0 ? asked.ranks : cluster.ranks;
  check(workload, asked, ranks);
  SearchSpace space =
      search_space(asked.current, asked.codecs, asked.more, cluster, workload.knows_shapes());
  for (const doc::Strategy& tried : asked.refuted) leave_out(tried, space);
  const std::vector<doc::Strategy> beyond = restrict_to(asked.framework, asked, space);
  const AdviseOptions options = with_steps_of_current(asked, space.strategies, space.notes);
  Evaluator evaluator(workload, cluster, ranks, options, asked.on_progress);
  // The most runs of the Evaluator that each part takes, for the progress that users see.
  std::deque<std::size_t> parts = {
      space.strategies.size(), most_ceiling_runs(space.strategies, options.current),
      most_bandwidth_runs(space.strategies, options), most_full_use_runs(), beyond.size()};
  const auto begin_part = [&] {
    evaluator.progress().expect(std::accumulate(parts.begin(), parts.end(), std::size_t{0}));
    if (!parts.empty()) parts.pop_front();
  };
  begin_part();
  const Judged in_use = judge_current(evaluator);

  JudgedList judged = judge_space(evaluator, in_use, space.strategies);
  if (workload.turns() > 1)  // a note says so once
    std::erase_if(judged, [&](const Judged& j) { return !j.outcome && !is_asked(j, asked.more); });
  const std::string simplest = winner(judged, options);
  std::ranges::stable_sort(judged, before, &Judged::candidate);
  const doc::Candidate dense = best_uncompressed(judged, in_use.candidate);

  doc::Advice a;
  a.workload = workload.name, a.cluster = cluster.name, a.ranks = ranks;
  a.bandwidth_bit_per_s = kBitsPerByte * evaluator.line_bytes_per_s();
  a.one_rank_step_s = workload.one_rank_step_s();
  const std::optional<doc::Candidate> recorded = as_recorded(evaluator);
  const doc::Candidate present = recorded.value_or(in_use.candidate);
  a.current = present.strategy;
  const auto width_of = [&](const doc::Cluster& known) {
    const cost::CostModel model(known, evaluator.model().options());
    const plan::Planner planner(options.current, known);
    const doc::Plan plan = planner.plan(workload, model, ranks, {.first_step = false});
    sim::Simulator simulator;
    const doc::Bounded step_s = sim::predicted_step(simulator.simulate(plan, model), plan, workload,
                                                    model, simulator, planner.coding_spread())
                                    .step_s;
    return step_s.high_or_value() - step_s.low_or_value();
  };
  if (std::string note = cost::nominal_note(cluster, ranks, width_of); !note.empty())
    a.notes.push_back(std::move(note));
  a.notes.insert(a.notes.end(), space.notes.begin(), space.notes.end());
  set_exposed(evaluator, judged);
  for (Judged& j : judged) {
    if (j.candidate.target_s && present.target_s)
      j.candidate.over_current = over(j.candidate, present);
    j.candidate.reason = reason_of(j, present, dense, a.one_rank_step_s, options, cluster);
    a.candidates.push_back(j.candidate);
  }
  compare_present(a, present, a.candidates.front(), evaluator);
  conclude(a, present, simplest, options.least_gain, evaluator);
  say_bound(a, judged);
  begin_part();
  if (!recorded)
    a.ceilings = ceilings(evaluator, *in_use.outcome, space.strategies);
  else if (const auto ceiling = recorded_ceiling(evaluator))
    a.ceilings = {*ceiling};
  begin_part();
  a.turning_points = bandwidth_turning_points(evaluator, space.strategies);
  begin_part();
  for (std::string& note : about_compression(judged, dense, ratio_for_full_use(evaluator), options))
    a.notes.push_back(std::move(note));
  if (!recorded) a.stragglers = stragglers(evaluator, *in_use.outcome);
  lead_with_stragglers(a, present, options.least_gain);
  add_notes(a, judged, evaluator);
  begin_part();
  put_into_words(evaluator, beyond, a);
  begin_part();
  a.notes = joined_alike(a.notes);
  return a;
}

}  // namespace linerate::advise
