// What an advice does not know, and what that means for it. A note is a sentence that concerns this
// job: one that would be true of every job is no note.
#include "linerate/advise/notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "linerate/core/text.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::advise {
namespace {

/// Whether a codec, a compressor or a narrower wire is in the strategy. K-FAC alone changes
/// convergence too, and compresses nothing.
bool compresses(const doc::Strategy& s) {
  return s.exchange.find("wire") != nullptr ||
         std::any_of(s.extras.begin(), s.extras.end(),
                     [](const doc::Component& c) { return !plan::is(c, plan::Extra::curvature); });
}

// Compressors whose steps to the target are not known. Each is named once, whatever exchanges it
// was tried with.
std::string unranked_names(const std::vector<Judged>& judged, const AdviseOptions& options) {
  std::vector<std::string> names;
  for (const Judged& j : judged)
    // With known steps it missed the target, and its reason says so.
    if (j.candidate.standing == doc::Standing::unranked && !find_steps(options.steps, j.strategy))
      add_once(names, compression_of(j.strategy));
  return join(names, "; ");
}

// A note on entries of --steps-to-target that fit no candidate.
void add_unmatched(doc::Advice& a, const std::vector<Judged>& judged,
                   const AdviseOptions& options) {
  std::vector<doc::Strategy> strategies;
  std::vector<std::string> there;
  for (const Judged& j : judged) {
    strategies.push_back(j.strategy);
    if (j.changes_convergence()) add_once(there, compression_of(j.strategy));
  }
  const std::vector<std::string> keys = keys_without(options.steps, strategies);
  if (keys.empty()) return;
  a.notes.push_back(fmt::format(
      "--steps-to-target: no candidate is {}. The candidates that change convergence are {}.",
      join(keys, ", nor "), there.empty() ? "none" : join(there, "; ")));
}

// The strategy in use, where a step of it was measured. A prediction that misses the job's own step
// is worth little for other strategies, so the advice says so before anything else.

// An error of the prediction that is below this share of the fastest strategy's gain cannot turn
// the advice around.
constexpr double kShareOfGain = 0.25;

// How far the measured step lies outside the interval; 0 if it lies inside.
double outside_s(double measured_s, const doc::Bounded& step) {
  return std::max({0.0, step.low_or_value() - measured_s, measured_s - step.high_or_value()});
}

// Whether the prediction misses the measured step: it lies outside the interval, by more than a
// quarter of what the fastest candidate gains. Without an interval it misses if it is off by more
// than that gain, because then the gain means nothing. An example: predicted 100 ms, measured
// 106 ms, the fastest predicted 95 ms. It is off by 6 ms for a gain of 5 ms, so it misses.
bool misses(double measured_s, const doc::Bounded& step, const doc::Candidate& fastest) {
  const double gain_s = fastest.target_s ? std::max(0.0, step.value - fastest.target_s->value) : 0;
  if (step.low || step.high) return outside_s(measured_s, step) > kShareOfGain * gain_s;
  return std::abs(measured_s - step.value) > gain_s;
}

// "Strategy in use, ddp: measured 106 ms, predicted 100 ms (95 .. 104).", and what follows if the
// prediction misses.
std::string in_words(const doc::Advice& a, const doc::Bounded& step, bool is_known) {
  std::string predicted = format_time(step.value);
  if (step.has_interval())
    predicted += fmt::format(" ({} .. {})", format_time(*step.low), format_time(*step.high));
  const std::string measured = format_time(*a.measured_step_s);
  if (!is_known)
    return fmt::format(
        "No strategy of linerate's is known to exchange as the job does. The others are compared "
        "with its step as recorded, {}, and no prediction of that step can be checked.",
        measured);
  std::string text = fmt::format("Strategy in use, {}: measured {}, predicted {}.", a.current,
                                 measured, predicted);
  if (a.confidence == doc::Confidence::low)
    text +=
        " The measured step lies outside the prediction, so do not trust what follows. Either the "
        "Cluster describes another network or load, or the job does something that its Workload "
        "does not say.";
  else if (step.has_interval() && outside_s(*a.measured_step_s, step) > 0)
    text += fmt::format(
        " The measured step lies outside the interval by {}, less than a quarter of what the "
        "fastest strategy gains.",
        format_time(outside_s(*a.measured_step_s, step)));
  return text;
}

}  // namespace

// By this text ways of compressing are told apart: "powersgd(rank=4)", "wire=fp16".
std::string compression_of(const doc::Strategy& s) {
  if (!s.extras.empty()) return doc::to_text(s.extras.front());
  const std::string* wire = s.exchange.find("wire");
  return wire ? "wire=" + *wire : "";
}

// For each way of compressing the exchange with the shortest step counts. Steps are compared with
// `dense` before any more steps that the compression needs, so the count is what could pay at best.
std::vector<std::string> about_compression(const std::vector<Judged>& judged,
                                           const doc::Candidate& dense,
                                           std::optional<double> full_use,
                                           const AdviseOptions& options) {
  std::map<std::string, const Judged*> best;
  for (const Judged& j : judged) {
    if (!j.changes_convergence() || !compresses(j.strategy)) continue;
    const Judged*& known = best[compression_of(j.strategy)];
    if (!known || j.candidate.step_s->value < known->candidate.step_s->value) known = &j;
  }
  std::vector<std::string> notes;
  if (!best.empty()) {
    const auto shorter = [&](const Judged& j) {
      return 100 * (1 - j.candidate.step_s->value / dense.step_s->value);
    };
    const auto gains = [&](const auto& entry) {
      return shorter(*entry.second) >= 100 * options.least_gain && shorter(*entry.second) > 0;
    };
    const auto k = std::ranges::count_if(best, gains);
    const Judged& first = *std::ranges::max_element(best, {}, [&](const auto& entry) {
                             return shorter(*entry.second);
                           })->second;
    notes.push_back(fmt::format(
        "Compression {}. {} of {} ways of compressing that were tried have a step at least {:g} % "
        "shorter than {}'s. The best, {}, takes {} {}{}. The extra steps that it may need "
        "are not counted.",
        k > 0 ? "may pay here" : "does not pay here", k, best.size(), 100 * options.least_gain,
        dense.strategy, first.candidate.strategy, format_percent(std::abs(shorter(first)) / 100),
        shorter(first) < 0 ? "longer" : "less",
        first.coding_is_bound()
            ? " if its coding takes no longer than a cast, which is the least that it can take"
            : ""));
  }
  const std::string exchange = options.current.exchange.name;
  const double percent = 100 * (kFullUse - 1);
  if (!full_use)
    notes.push_back(
        fmt::format("No compression ratio brings {} within {:.0f} % of one rank's step, because "
                    "what is left does not shrink with the bytes.",
                    exchange, percent));
  else if (*full_use <= 1)
    notes.push_back(
        fmt::format("{} is already within {:.0f} % of one rank's step. If the network is used "
                    "fully, no compression is needed.",
                    exchange, percent));
  else
    notes.push_back(
        fmt::format("If the network is used fully, {} comes within {:.0f} % of one rank's step "
                    "with payloads {:.3g} x smaller and coding that takes no time.",
                    exchange, percent, *full_use));
  return notes;
}

// The order is that of weight: what makes differences meaningless first, then what is left out,
// then where prices come from.
void add_notes(doc::Advice& a, const std::vector<Judged>& judged, const Evaluator& evaluator) {
  const AdviseOptions& options = evaluator.options();
  const cost::CostModel model = evaluator.model();
  if (!a.candidates.front().step_s->low)
    a.notes.push_back(
        "The Cluster states no measured error, so there are no intervals, and differences of a few "
        "percent mean nothing. linerate calibrate measures the errors.");
  if (const std::string unranked = unranked_names(judged, options); !unranked.empty())
    a.notes.push_back(
        fmt::format("Strategies that change convergence are ranked only with --steps-to-target, by "
                    "step time x steps. Nothing here says how many steps these take: {}.",
                    unranked));
  add_unmatched(a, judged, options);
  for (std::string& note : cost::extrapolation_notes(model, evaluator.ranks()))
    a.notes.push_back(std::move(note));
  for (std::string& note : cost::outlier_notes(model)) a.notes.push_back(std::move(note));
  for (const Judged& j : judged)
    if (j.outcome)
      for (const std::string& note : j.outcome->notes) add_once(a.notes, note);
  cost::PriceNotes priced;
  priced.add_closed_form(model, evaluator.ranks());
  for (const Judged& j : judged)
    if (j.outcome) priced.add(j.outcome->plan, model);
  for (std::string& note : priced.sentences()) a.notes.push_back(std::move(note));
  const doc::Workload& workload = evaluator.workload();
  if (unmeasured_messages_s(a.candidates.front(), evaluator))
    a.notes.emplace_back(
        "The job was recorded on processors, and the Cluster does not say how much of them a "
        "message takes (message_s of contention). Predictions count that as nothing, so they "
        "favour many small messages that overlap. linerate calibrate on the job's ranks measures "
        "it.");
  if (workload.turns() > 1)
    a.notes.push_back(fmt::format(
        "The job trains {} models in turn: each exchanges its own gradients, and the next backward "
        "pass waits for them. Exchanges that reach into the next step, compressors and K-FAC "
        "cannot be planned for such a job, so they are not candidates.",
        workload.turns()));
  if (workload.split_by_flops) a.notes.emplace_back(cost::kSplitByFlops);
  if (!workload.step_s && !workload.forward_s)
    a.notes.push_back(
        "The Workload does not time its forward pass, so steps consist of backward and exchange "
        "alone.");
}

std::vector<std::string> joined_alike(const std::vector<std::string>& notes) {
  std::vector<std::string> all, said;  // `said`: what follows the names of a note in `all`
  for (const std::string& note : notes) {
    const std::size_t colon = std::min(note.find(": "), note.size());
    const std::string names = note.substr(0, colon), rest = note.substr(colon);
    const auto same = rest.empty() ? said.end() : std::find(said.begin(), said.end(), rest);
    if (same == said.end()) {
      all.push_back(note);
      said.push_back(rest);
    } else if (std::find(all.begin(), all.end(), note) == all.end()) {
      std::string& first = all[static_cast<std::size_t>(same - said.begin())];
      first.insert(first.size() - rest.size(), ", " + names);
    }
  }
  return all;
}

// Only of the network and the ranks that the job ran on. Of another bandwidth nothing was measured.
const doc::RecordedStep* measured_step(const Evaluator& evaluator) {
  const auto& recorded = evaluator.workload().recorded;
  const bool so = recorded && recorded->ranks == evaluator.ranks() &&
                  !evaluator.options().bandwidth && !evaluator.options().latency;
  return so ? &*recorded : nullptr;
}

// A message that hides under computation may slow that computation, and nobody measured by how
// much. The bound is the communication that is hidden. It is the larger of two figures:
// communication less its exposed part, and the time that overlap saves over computing and sending
// in turn. The second one counts if ranks are late, because waiting for them is exposed and hides
// nothing.
std::optional<double> unmeasured_messages_s(const doc::Candidate& c, const Evaluator& evaluator) {
  const auto& recorded = evaluator.workload().recorded;
  const auto& contention = evaluator.cluster().contention;
  if (!recorded || !recorded->on_cpu || (contention && contention->message_s > 0) ||
      !c.communication_s)
    return std::nullopt;
  const double one_after_the_other_s = slowest_rank_s(evaluator).value + *c.communication_s;
  return std::max({0.0, *c.communication_s - c.exposed_communication_s.value_or(0),
                   one_after_the_other_s - c.step_s->value});
}

// A candidate without a prediction: the job's own exchange, which is none of linerate's. Others are
// compared with its measured step.
std::optional<doc::Candidate> as_recorded(const Evaluator& evaluator) {
  const doc::RecordedStep* measured = measured_step(evaluator);
  if (evaluator.options().current_is_known || !measured) return std::nullopt;
  doc::Candidate c;
  c.strategy = "the exchange as recorded";
  c.step_s = c.target_s = doc::Bounded{measured->step_s};
  return c;
}

void compare_present(doc::Advice& a, const doc::Candidate& in_use, const doc::Candidate& fastest,
                     const Evaluator& evaluator) {
  const doc::RecordedStep* measured = measured_step(evaluator);
  if (!measured) return;
  a.measured_step_s = measured->step_s;
  const bool is_known = evaluator.options().current_is_known;
  if (is_known)
    a.confidence = misses(*a.measured_step_s, *in_use.step_s, fastest) ? doc::Confidence::low
                                                                       : doc::Confidence::checked;
  a.present = in_words(a, *in_use.step_s, is_known);
}

}  // namespace linerate::advise
