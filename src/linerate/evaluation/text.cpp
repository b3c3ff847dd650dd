#include "linerate/evaluation/text.hpp"

#include <fmt/format.h>

#include "linerate/core/text.hpp"
#include "linerate/evaluation/accuracy.hpp"
#include "linerate/evaluation/timing.hpp"

namespace linerate::evaluation {
namespace {

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

// The shortest and the longest round.
std::string range_of(const doc::TimedRun& run) {
  double least = run.round_step_s.front(), most = least;
  for (const double s : run.round_step_s) least = std::min(least, s), most = std::max(most, s);
  return fmt::format("{} .. {}", format_time(least), format_time(most));
}

/// Steps between two tests of the first run.
std::int64_t tested_every(const doc::Setup& setup) {
  const std::vector<doc::AccuracyPoint>& points = setup.trained.front().points;
  return points.empty() ? 0 : points.front().step;
}

std::string text_of(const Cells& cells) { return text_table(cells.columns, cells.rows, "  "); }

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

Cells timing_cells(const doc::Setup& setup) {
  Cells cells{{{"strategy"},
               {"role"},
               {"step", true},
               {"over rounds", true},
               {"/ fp32", true},
               {"/ 16-bit", true},
               {"gains"},
               {"encode", true},
               {"network", true},
               {"decode", true},
               {"exposed", true},
               {"sent", true}},
              {}};
  for (const Compared& c : compare(setup)) {
    const doc::TimedRun& run = *c.run;
    cells.rows.push_back({run.strategy, std::string(name_of(run.role)), format_time(step_s(run)),
                          range_of(run), ratio(c.to_fp32), ratio(c.to_sixteen_bit), gain_text(c),
                          format_time(run.encode_s), format_time(run.communication_s),
                          format_time(run.decode_s), format_time(run.exposed_s),
                          format_size(run.sent_bytes)});
  }
  return cells;
}

Cells property_cells(const doc::Setup& setup) {
  Cells cells{
      {{"candidate"}, {"summed"}, {"coding of step", true}, {"network hidden", true}, {"options"}},
      {}};
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
  Cells cells{{{"strategy"},
               {"seeds", true},
               {"after equal steps", true},
               {"after equal time", true},
               {"steps to target / fp32", true},
               {"diverged", true}},
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
  return fmt::format("target: test accuracy {}{}, tested every {} steps", accuracy(*target),
                     setup.target_accuracy ? "" : " (fp32's last less its spread over seeds)",
                     tested_every(setup));
}

std::string to_text(const doc::Evaluation& evaluation) {
  std::string text;
  for (const doc::Setup& setup : evaluation.setups) text += text_of(setup);
  const Gains gains = count_gains(evaluation);
  return text + (gains.all > 0 ? sentence_of(gains) + "\n" : "");
}

}  // namespace linerate::evaluation
