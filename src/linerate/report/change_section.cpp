
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "linerate/compare/comparison.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

constexpr std::size_t kMostPoints = 40;  // of a line of losses
constexpr double kAsLong = 0.02;         // steps that differ by less are as long as each other

/// One job as it ran, with its prediction if there is one.
struct MeasuredJob {
  const NamedTimeline* measured = nullptr;
  const NamedTimeline* predicted = nullptr;
  trace::Explanation explanation;
  std::optional<compare::Comparison> comparison;  // if it was predicted

  const std::string& strategy() const { return measured->timeline.strategy; }
  /// As `compare` says if there is a prediction, else as `explain` does.
  double step_s() const {
    return comparison ? comparison->step.measured_s.value_or(0)
                      : explanation.breakdown.step_s.value_or(0);
  }
};

bool same_job(const doc::Timeline& a, const doc::Timeline& b) {
  return a.workload == b.workload && a.ranks == b.ranks && !a.workload.empty();
}

MeasuredJob job_of(const NamedTimeline& measured, const Inputs& documents) {
  MeasuredJob job{&measured, nullptr, explanation_of(measured), {}};
  for (const NamedTimeline& other : documents.timelines)
    if (is_predicted(other.timeline) && same_job(other.timeline, measured.timeline) &&
        other.timeline.strategy == job.strategy() && !other.timeline.steps.empty())
      job.predicted = &other;
  if (job.predicted) job.comparison = compare::compare(job.predicted->timeline, measured.timeline);
  return job;
}

/// The job before the change first. Empty if no two strategies of one Workload were measured.
std::vector<MeasuredJob> measured_jobs(const Inputs& documents) {
  std::vector<const NamedTimeline*> found;
  for (const NamedTimeline& t : documents.timelines) {
    const doc::Timeline& timeline = t.timeline;
    if (is_predicted(timeline) || timeline.strategy.empty() || timeline.events.empty() ||
        timeline.steps.empty())
      continue;
    const bool is_other = std::ranges::none_of(found, [&](const NamedTimeline* earlier) {
      return earlier->timeline.strategy == timeline.strategy;
    });
    if (found.empty() || (is_other && same_job(found.front()->timeline, timeline)))
      found.push_back(&t);
  }
  if (found.size() < 2) return {};
  std::ranges::stable_partition(found, [&](const NamedTimeline* t) {
    return std::ranges::any_of(documents.advice, [&](const doc::Advice& a) {
      return a.workload == t->timeline.workload && a.current == t->timeline.strategy;
    });
  });
  std::vector<MeasuredJob> jobs;
  for (const NamedTimeline* t : found) jobs.push_back(job_of(*t, documents));
  return jobs;
}

std::string speed_of(double before_s, double after_s) {
  if (!(before_s > 0) || !(after_s > 0)) return "";
  const double ratio = before_s / after_s;
  if (std::abs(ratio - 1) < kAsLong) return ", which is as long";
  const double times = std::max(ratio, 1 / ratio);
  return fmt::format(", {:.{}f} times as {}", times, times < 10 ? 1 : 0,
                     ratio > 1 ? "fast" : "long");
}

std::string step_sentence(const MeasuredJob& before, const MeasuredJob& after) {
  return fmt::format("A step takes {} with {} instead of {} with {}{}.",
                     format_time(after.step_s()), after.strategy(), format_time(before.step_s()),
                     before.strategy(), speed_of(before.step_s(), after.step_s()));
}

/// The interval is the advice's, since a predicted Timeline has none.
const doc::Bounded* advised_step(const MeasuredJob& job, const Inputs& documents) {
  for (const doc::Advice& a : documents.advice)
    for (const doc::Candidate& c : a.candidates)
      if (a.workload == job.measured->timeline.workload && c.strategy == job.strategy() &&
          c.step_s && c.step_s->has_interval())
        return &*c.step_s;
  return nullptr;
}

std::string prediction_sentence(const MeasuredJob& job, const Inputs& documents) {
  const std::optional<double> predicted_s = job.comparison->step.predicted_s;
  const std::optional<double> error = job.comparison->step.error();
  if (!predicted_s || !error) return "";
  std::string text = fmt::format("Before {} ran, its step was predicted to take {}", job.strategy(),
                                 format_time(*predicted_s));
  const doc::Bounded* advised = advised_step(job, documents);
  if (advised)
    text += fmt::format(" (90 % interval {})", time_range(*advised->low, *advised->high));
  text += fmt::format(", {} {} than measured.", format_percent(std::abs(*error)),
                      *error < 0 ? "less" : "more");
  if (!advised) return text;
  const bool inside = job.step_s() >= *advised->low && job.step_s() <= *advised->high;
  return text +
         fmt::format(" The measured step lies {} the interval.", inside ? "inside" : "outside");
}

std::string verdict_sentence(const MeasuredJob& job) {
  const trace::Verdict& verdict = job.explanation.verdict;
  return fmt::format("With {} the job is {}, because {}.", job.strategy(),
                     trace::finding_text(verdict), verdict.reason);
}

doc::Json row_of(const NamedTimeline& t, const trace::Explanation& e, double step_s) {
  double whole_s = 0, computing_s = 0, moving_s = 0, waiting_s = 0, idle_s = 0;
  for (const trace::RankRow& r : e.breakdown.ranks) {
    whole_s += r.per_step.window_s, computing_s += r.per_step.compute_s;
    moving_s += r.per_step.exposed_transfer_s, idle_s += r.per_step.idle_s;
    waiting_s += r.per_step.exposed_wait_s + r.per_step.exposed_unsplit_s;
  }
  std::vector<double> parts_s;
  if (whole_s > 0)
    for (const double part_s : {computing_s, moving_s, waiting_s, idle_s})
      parts_s.push_back(part_s / whole_s * step_s);
  return chart_row(fmt::format("{}, {}", t.timeline.strategy,
                               is_predicted(t.timeline) ? "predicted" : "measured"),
                   {step_s}, false, parts_s);
}

Figure step_figure(const std::vector<MeasuredJob>& jobs) {
  std::vector<doc::Json> rows;
  for (const MeasuredJob& job : jobs) {
    if (job.predicted)
      rows.push_back(row_of(*job.predicted, explanation_of(*job.predicted),
                            job.comparison->step.predicted_s.value_or(0)));
    rows.push_back(row_of(*job.measured, job.explanation, job.step_s()));
  }
  return {"Where a step goes", "Median step, divided as the mean step of all ranks is.",
          drawing_of_rows("Where a step goes, before and after the change", "Time of a step", rows,
                          {"computing and coding", "moving data, not overlapped",
                           "waiting for other ranks", "neither"})};
}

/// What `compare` says of each job that was predicted.
std::optional<Table> comparison_table(const std::vector<MeasuredJob>& jobs) {
  Table table{{"Median of a step", ">Predicted", ">Measured", ">Error"}, {}};
  const auto compared = std::ranges::count_if(jobs, &MeasuredJob::predicted);
  for (const MeasuredJob& job : jobs) {
    if (!job.comparison) continue;
    std::vector<compare::ComparedRow> rows = {job.comparison->step, job.comparison->exposed};
    rows.insert(rows.end(), job.comparison->kinds.begin(), job.comparison->kinds.end());
    for (const compare::ComparedRow& row : rows) {
      if (!row.predicted_s || !row.measured_s) continue;
      const std::optional<double> error = row.error();
      table.rows.push_back(
          {compared > 1 ? fmt::format("{}, {}", job.strategy(), row.what) : row.what,
           format_time(*row.predicted_s), format_time(*row.measured_s),
           error ? compare::signed_percent(*error) : "–"});
    }
  }
  if (table.rows.empty()) return std::nullopt;
  return table;
}

std::string comparison_note(const MeasuredJob& job) {
  const compare::Comparison& c = *job.comparison;
  std::string text = fmt::format("{}: medians of {} measured steps, after {} for warm-up.",
                                 job.strategy(), c.measured_steps, c.dropped_steps);
  if (c.step.noise)
    text += fmt::format(" The step differs by {} between {}.", format_percent(*c.step.noise),
                        *c.noise_source);
  return text;
}

// ---- Losses ----

/// The measured Timeline of the run whose losses these are: of the same label.
const NamedTimeline* timeline_of(const NamedLosses& losses, const Inputs& documents) {
  for (const NamedTimeline& t : documents.timelines)
    if (t.label == losses.label && !is_predicted(t.timeline)) return &t;
  return nullptr;
}

std::string name_of(const NamedLosses& losses, const Inputs& documents) {
  const NamedTimeline* t = timeline_of(losses, documents);
  return t && !t->timeline.strategy.empty() ? t->timeline.strategy : losses.label;
}

/// Of the measured Timeline; 0: there is none, or it has no steps.
double median_step_s(const NamedLosses& losses, const Inputs& documents) {
  std::vector<double> steps_s;
  if (const NamedTimeline* t = timeline_of(losses, documents))
    for (const doc::Step& step : t->timeline.steps) steps_s.push_back(step.seconds());
  return steps_s.empty() ? 0 : median(steps_s);
}

/// Mean of the `count` losses that end before `end`.
double mean_before(const NamedLosses& losses, std::size_t end, std::size_t count) {
  return mean(std::span(losses.values).subspan(end - count, count));
}

/// The steps that all runs took.
std::size_t shared_steps(const Inputs& documents) {
  std::size_t least = documents.losses.front().values.size();
  for (const NamedLosses& losses : documents.losses) least = std::min(least, losses.values.size());
  return least;
}

std::string loss_sentence(const Inputs& documents) {
  const std::size_t steps = shared_steps(documents), last = std::max<std::size_t>(1, steps / 10);
  const NamedLosses& first = documents.losses.front();
  const double reference = mean_before(first, steps, last);
  std::string text = fmt::format("After {} steps the loss is {:.3g} with {}", steps, reference,
                                 name_of(first, documents));
  for (std::size_t i = 1; i < documents.losses.size(); ++i) {
    const double loss = mean_before(documents.losses[i], steps, last);
    text += fmt::format(" and {:.3g} with {}", loss, name_of(documents.losses[i], documents));
    if (reference > 0) text += fmt::format(" ({})", compare::signed_percent(loss / reference - 1));
  }
  return text + fmt::format(", as the mean of the last {} step{}.", last, last == 1 ? "" : "s");
}

Table loss_table(const Inputs& documents) {
  Table table{{">Steps"}, {}};
  for (const NamedLosses& losses : documents.losses)
    table.head.push_back(">" + name_of(losses, documents));
  const std::size_t steps = shared_steps(documents), block = std::max<std::size_t>(1, steps / 10);
  for (std::size_t end = block; end <= steps; end += block) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(std::to_string(end));
    for (const NamedLosses& losses : documents.losses)
      row.push_back(fmt::format("{:.3g}", mean_before(losses, end, block)));
  }
  return table;
}

void add_losses(const Inputs& documents, Section& section) {
  if (documents.losses.empty() || shared_steps(documents) == 0) return;
  section.paragraphs.push_back(loss_sentence(documents));
  section.figures.push_back({"Loss at equal steps", "Mean over neighbouring steps and all ranks.",
                             drawing_of(loss_chart(documents, false)), loss_table(documents)});
  const LineChart over_time = loss_chart(documents, true);
  if (over_time.series.size() > 1)
    section.figures.push_back({"Loss over time",
                               "The same losses. A step counts as long as its run's median step.",
                               drawing_of(over_time)});
}

}  // namespace

LineChart loss_chart(const Inputs& documents, bool over_time) {
  LineChart chart;
  chart.name = over_time ? "Training loss over time" : "Training loss over steps";
  chart.x_label = over_time ? "Training, seconds" : "Steps";
  chart.y_label = "Training loss";
  chart.log_x = false;
  for (const NamedLosses& losses : documents.losses) {
    const double step = over_time ? median_step_s(losses, documents) : 1;
    if (step <= 0) continue;
    Series& series = chart.series.emplace_back(Series{name_of(losses, documents), {}});
    const std::size_t count = losses.values.size();
    const std::size_t block = std::max<std::size_t>(1, (count + kMostPoints - 1) / kMostPoints);
    for (std::size_t begin = 0; begin < count; begin += block) {
      const std::size_t end = std::min(begin + block, count);
      const double middle =
          static_cast<double>(losses.first_step) + static_cast<double>(begin + end) / 2;
      series.points.push_back({middle * step, mean_before(losses, end, end - begin)});
    }
  }
  return chart;
}

std::optional<Section> change_section(const Inputs& documents) {
  const std::vector<MeasuredJob> jobs = measured_jobs(documents);
  if (jobs.empty() && documents.losses.empty()) return std::nullopt;
  Section section;
  if (jobs.empty()) {
    section.title = "Training loss";
    add_losses(documents, section);
    return section;
  }
  const MeasuredJob& before = jobs.front();
  const doc::Timeline& timeline = before.measured->timeline;
  section.title = fmt::format("{} on {} rank{}: a step of {} instead of {}", timeline.workload,
                              timeline.ranks, timeline.ranks == 1 ? "" : "s",
                              format_time(jobs[1].step_s()), format_time(before.step_s()));
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    section.paragraphs.push_back(step_sentence(before, jobs[i]));
    if (!jobs[i].comparison) continue;
    if (std::string text = prediction_sentence(jobs[i], documents); !text.empty())
      section.paragraphs.push_back(std::move(text));
  }
  section.figures.push_back(step_figure(jobs));
  add_losses(documents, section);
  for (const MeasuredJob& job : jobs) section.paragraphs.push_back(verdict_sentence(job));
  section.table = comparison_table(jobs);
  for (const MeasuredJob& job : jobs)
    if (job.comparison) section.notes.push_back(comparison_note(job));
  return section;
}

}  // namespace linerate::report
