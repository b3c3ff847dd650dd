// What an Evaluation's trainings say about each strategy. A strategy is trained over several seeds,
// for as many steps as fp32 and for as long as fp32. Steps to the target come from runs with equal
// steps alone: a run that is cut by time has fewer or more of them.
#include "linerate/compare/accuracy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/units.hpp"

namespace linerate::compare {
namespace {

/// The last test accuracy of every run that got to its end: median, least and greatest.
std::optional<doc::Bounded> last_accuracy(const doc::Setup& setup, const std::string& strategy,
                                          doc::Budget budget) {
  std::vector<double> values;
  for (const doc::TrainedRun& run : setup.trained)
    if (run.strategy == strategy && run.budget == budget && run.diverged.empty() &&
        !run.points.empty())
      values.push_back(run.points.back().test_accuracy);
  if (values.empty()) return std::nullopt;
  const auto [least, greatest] = std::ranges::minmax(values);
  return doc::Bounded{median(values), least, greatest};
}

// Counts a run. `diverged` counts runs of both budgets, `missed` those of equal steps.
void add_run(Learned& to, const doc::TrainedRun& run, const std::optional<double>& target) {
  to.diverged += !run.diverged.empty();
  if (run.budget == doc::Budget::time) return;
  ++to.runs;
  if (!target) return;
  if (const auto steps = steps_to(run, *target))
    to.steps_to_target.push_back(*steps);
  else
    ++to.missed;
}

constexpr double kNoiseQuantile = 0.9;

// Step over the base's step in the same round. The rounds of an Evaluation are taken in turn, so
// whatever slows a round slows both.
std::vector<double> round_ratios(const doc::TimedRun& run, const doc::TimedRun& base) {
  std::vector<double> ratios;
  for (std::size_t r = 0; r < std::min(run.round_step_s.size(), base.round_step_s.size()); ++r)
    ratios.push_back(run.round_step_s[r] / base.round_step_s[r]);
  return ratios;
}

Compared compare(const doc::TimedRun& run, const doc::Setup& setup,
                 const std::optional<double>& noise) {
  Compared c;
  c.run = &run;
  if (const doc::TimedRun* base = find(setup, doc::Role::fp32)) c.to_fp32 = ratio_to(run, *base);
  if (const doc::TimedRun* base = find(setup, doc::Role::sixteen_bit))
    c.to_sixteen_bit = ratio_to(run, *base);
  c.gains_over_fp32 = noise && c.to_fp32 && *c.to_fp32 < 1 - *noise;
  c.gains_over_both = c.gains_over_fp32 && c.to_sixteen_bit && *c.to_sixteen_bit < 1 - *noise;
  c.coding_share = (run.encode_s + run.decode_s) / step_s(run);
  if (run.communication_s > 0) c.hidden_share = 1 - run.exposed_s / run.communication_s;
  return c;
}

constexpr const char* kNone = "-";

std::string accuracy(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string ratio(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : kNone;
}

/// "88.10 % (87.92 .. 88.31)", the range left out if it is one value.
std::string accuracy(const std::optional<doc::Bounded>& a) {
  if (!a) return kNone;
  if (*a->low == *a->high) return accuracy(a->value);
  return fmt::format("{} ({:.2f} .. {:.2f})", accuracy(a->value), 100 * *a->low, 100 * *a->high);
}

// "1.24 [1.09, 1.50], 1 of 3 missed"; "missed" if no run reached the target.
std::string steps_text(const Learned& l) {
  if (l.steps_to_target.empty()) return l.missed > 0 ? "missed" : kNone;
  std::string text = kNone;
  if (l.steps_ratio && l.steps_ratio->has_interval())
    text = fmt::format("{:.2f} [{:.2f}, {:.2f}]", l.steps_ratio->value, *l.steps_ratio->low,
                       *l.steps_ratio->high);
  else if (l.steps_ratio)
    text = fmt::format("{:.2f}", l.steps_ratio->value);
  if (l.missed > 0) text += fmt::format(", {} of {} missed", l.missed, l.runs);
  return text;
}

// Which baselines the candidate's steps are shorter than, by more than the noise floor.
std::string gain_text(const Compared& c) {
  if (c.run->role != doc::Role::candidate) return "";
  return c.gains_over_both ? "both" : c.gains_over_fp32 ? "fp32" : "no";
}

std::string text_of(const Cells& cells) { return text_table(cells.heads, cells.rows, "  "); }

std::string text_of(const doc::Setup& setup) {
  std::string text = title_of(setup) + "\n";
  if (!setup.timed.empty())
    text += text_of(timing_cells(setup)) + "  " + noise_sentence(setup) + "\n\n" +
            text_of(property_cells(setup));
  if (!setup.trained.empty())
    text += "\n" + text_of(accuracy_cells(setup)) + "  " + target_sentence(setup) + "\n";
  for (const std::string& note : setup.notes) text += "  note: " + note + "\n";
  return text + "\n";
}

}  // namespace

// An example: fp32 ends at 88.0, 88.3 and 88.6 % over three seeds. The target is the median less
// the spread, 88.3 - .6 = 87.7 %. A strategy that stays within fp32's own spread so reaches it.
std::optional<double> target_of(const doc::Setup& setup) {
  if (setup.target_accuracy) return setup.target_accuracy;
  const auto base = std::ranges::find(setup.trained, doc::Role::fp32, &doc::TrainedRun::role);
  if (base == setup.trained.end()) return std::nullopt;
  const auto last = last_accuracy(setup, base->strategy, doc::Budget::steps);
  if (!last) return std::nullopt;
  return std::max(0.0, last->value - (*last->high - *last->low));
}

std::optional<double> steps_to(const doc::TrainedRun& run, double target) {
  for (const doc::AccuracyPoint& p : run.points)
    if (p.test_accuracy >= target) return static_cast<double>(p.step);
  return std::nullopt;
}

std::vector<Learned> learned(const doc::Setup& setup) {
  const std::optional<double> target = target_of(setup);
  std::vector<Learned> all;
  for (const doc::TrainedRun& run : setup.trained) {
    auto found = std::ranges::find(all, run.strategy, &Learned::strategy);
    if (found == all.end()) {
      found = all.insert(all.end(), Learned{});
      found->strategy = run.strategy;
      found->role = run.role;
      found->after_steps = last_accuracy(setup, run.strategy, doc::Budget::steps);
      found->after_time = last_accuracy(setup, run.strategy, doc::Budget::time);
      if (!found->after_time && steps_in_equal_time(setup, run.strategy, run.steps) == run.steps)
        found->after_time = found->after_steps;
    }
    add_run(*found, run, target);
  }
  const auto base = std::ranges::find(all, doc::Role::fp32, &Learned::role);
  if (base == all.end() || base->steps_to_target.empty()) return all;
  for (Learned& l : all)
    if (!l.steps_to_target.empty())
      l.steps_ratio = steps_ratio(l.steps_to_target, base->steps_to_target);
  return all;
}

// If a compressed step takes 50 ms and fp32's 100 ms, 1000 steps of fp32 take as long as 2000
// compressed ones.
std::optional<std::int64_t> steps_in_equal_time(const doc::Setup& setup,
                                                const std::string& strategy, std::int64_t steps) {
  const doc::TimedRun* base = find(setup, doc::Role::fp32);
  const auto run = std::ranges::find(setup.timed, strategy, &doc::TimedRun::strategy);
  if (!base || run == setup.timed.end()) return std::nullopt;
  const double ratio = ratio_to(*run, *base);
  if (std::abs(ratio - 1) <= noise_floor(setup).value_or(0)) return steps;
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(steps) / ratio));
}

// An example: runs of 120, 130 and 150 steps against 100 and 110. The ratio is 130 / 105 = 1.24,
// and the interval reaches from 120 / 110 = 1.09 to 150 / 100 = 1.5.
doc::Bounded steps_ratio(std::span<const double> steps, std::span<const double> uncompressed) {
  doc::Bounded ratio{median(steps) / median(uncompressed)};
  if (steps.size() + uncompressed.size() <= 2) return ratio;
  ratio.low = std::ranges::min(steps) / std::ranges::max(uncompressed);
  ratio.high = std::ranges::max(steps) / std::ranges::min(uncompressed);
  return ratio;
}

double step_s(const doc::TimedRun& run) { return median(run.round_step_s); }

double ratio_to(const doc::TimedRun& run, const doc::TimedRun& base) {
  return median(round_ratios(run, base));
}

const doc::TimedRun* find(const doc::Setup& setup, doc::Role role) {
  const auto found = std::ranges::find(setup.timed, role, &doc::TimedRun::role);
  return found == setup.timed.end() ? nullptr : &*found;
}

// An example: in ten rounds the second run of fp32 is off by 0 to 1 % in nine and by 4 % in one.
// The floor is about 1 %: one bad round does not hide every gain.
std::optional<double> noise_floor(const doc::Setup& setup) {
  const doc::TimedRun* base = find(setup, doc::Role::fp32);
  const doc::TimedRun* repeat = find(setup, doc::Role::repeat);
  if (!base || !repeat) return std::nullopt;
  std::vector<double> off = round_ratios(*repeat, *base);
  for (double& ratio : off) ratio = std::abs(ratio - 1);
  return quantile(off, kNoiseQuantile);
}

std::vector<Compared> compare(const doc::Setup& setup) {
  const std::optional<double> noise = noise_floor(setup);
  std::vector<Compared> all;
  for (const doc::TimedRun& run : setup.timed) all.push_back(compare(run, setup, noise));
  return all;
}

Gains count_gains(const doc::Evaluation& evaluation) {
  Gains gains;
  for (const doc::Setup& setup : evaluation.setups)
    for (const Compared& c : compare(setup)) {
      if (c.run->role != doc::Role::candidate) continue;
      ++gains.all;
      gains.over_fp32 += c.gains_over_fp32;
      gains.over_both += c.gains_over_both;
    }
  return gains;
}

std::string sentence_of(const Gains& g) {
  return fmt::format(
      "{} of {} setups gain over tuned fp32, {} of {} over the better of fp32 and the 16-bit "
      "exchange.",
      g.over_fp32, g.all, g.over_both, g.all);
}

std::size_t fastest(const std::vector<doc::TimedRun>& runs) {
  return to_index(std::ranges::min_element(runs, {}, step_s) - runs.begin());
}

std::vector<std::string> bucket_ladder(std::int64_t gradient_bytes) {
  std::vector<std::string> sizes;
  for (const std::int64_t mib : {1, 5, 25, 100})
    if (gradient_bytes > MiB(mib).value) sizes.push_back(fmt::format("{}MiB", mib));
  return sizes;
}

Cells timing_cells(const doc::Setup& setup) {
  Cells cells{{"strategy", "role", ">step", ">over rounds", ">/ fp32", ">/ 16-bit", "gains",
               ">encode", ">network", ">decode", ">exposed", ">sent"},
              {}};
  for (const Compared& c : compare(setup)) {
    const doc::TimedRun& run = *c.run;
    const auto [least, most] = std::ranges::minmax(run.round_step_s);
    cells.rows.push_back({run.strategy, std::string(name_of(run.role)), format_time(step_s(run)),
                          fmt::format("{} .. {}", format_time(least), format_time(most)),
                          ratio(c.to_fp32), ratio(c.to_sixteen_bit), gain_text(c),
                          format_time(run.encode_s), format_time(run.communication_s),
                          format_time(run.decode_s), format_time(run.exposed_s),
                          format_size(run.sent_bytes)});
  }
  return cells;
}

Cells property_cells(const doc::Setup& setup) {
  Cells cells{{"candidate", "summed", ">coding of step", ">network hidden", "options"}, {}};
  for (const Compared& c : compare(setup)) {
    if (c.run->role != doc::Role::candidate) continue;
    const std::vector<std::string>& options = c.run->options;
    cells.rows.push_back(
        {c.run->strategy, c.run->is_summable ? "yes" : "no", format_percent(c.coding_share),
         format_percent(c.hidden_share),
         options.empty() ? "none" : fmt::format("{}: {}", options.size(), join(options, ", "))});
  }
  return cells;
}

Cells accuracy_cells(const doc::Setup& setup) {
  Cells cells{{"strategy", ">seeds", ">after equal steps", ">after equal time",
               ">steps to target / fp32", ">diverged"},
              {}};
  for (const Learned& l : learned(setup))
    cells.rows.push_back({l.strategy, std::to_string(l.runs), accuracy(l.after_steps),
                          accuracy(l.after_time), steps_text(l), std::to_string(l.diverged)});
  return cells;
}

std::string noise_sentence(const doc::Setup& setup) {
  const std::optional<double> noise = noise_floor(setup);
  if (!noise) return "no A/A run, so the noise floor is not known and no gain counts";
  return fmt::format("noise floor (A/A): {}; a gain counts if it is larger",
                     format_percent(*noise));
}

std::string target_sentence(const doc::Setup& setup) {
  if (setup.trained.empty()) return "";
  const std::optional<double> target = target_of(setup);
  if (!target) return "no target: no run of fp32 reached its end";
  const std::vector<doc::AccuracyPoint>& points = setup.trained.front().points;
  return fmt::format("target: test accuracy {}{}, tested every {} steps", accuracy(*target),
                     setup.target_accuracy ? "" : " (fp32's last less its spread over seeds)",
                     points.empty() ? 0 : points.front().step);
}

std::string to_text(const doc::Evaluation& evaluation) {
  std::string text;
  for (const doc::Setup& setup : evaluation.setups) text += text_of(setup);
  const Gains gains = count_gains(evaluation);
  return text + (gains.all > 0 ? sentence_of(gains) + "\n" : "");
}

}  // namespace linerate::compare
