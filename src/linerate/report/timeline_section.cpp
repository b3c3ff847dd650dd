// A prediction and a run of the same job share a section: they have one time axis, and a column
// each in the table. That is the question a reader has: whether the prediction holds, and which
// part of a step it misses.
#include "linerate/report/timeline_section.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/text.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/report/breakdown_table.hpp"
#include "linerate/report/drawing.hpp"
#include "linerate/report/row_chart.hpp"
#include "linerate/report/timeline_chart.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"

namespace linerate::report {
namespace {

// One side may be unnamed (an imported trace knows no strategy): then only equal texts join. Two
// runs without a prediction stay apart, and so do two predictions without a run.
bool belong_together(const doc::Timeline& a, const doc::Timeline& b) {
  return a.workload == b.workload && a.strategy == b.strategy && a.ranks == b.ranks &&
         is_predicted(a) != is_predicted(b) && !a.workload.empty();
}

std::string title_of(const doc::Timeline& t) {
  std::string title = t.workload.empty() ? "Timeline" : t.workload;
  if (!t.strategy.empty()) title += ", " + t.strategy;
  return title + fmt::format(", {} rank{}", t.ranks, t.ranks == 1 ? "" : "s");
}

// Steps and their durations as the Timeline states them. The first 64 show whether it was steady.
Table steps_table(const doc::Timeline& t) {
  Table table{{"Step", "Rank", "Variant", "Duration"}, {}, {true, true, false, true}};
  constexpr std::size_t kMost = 64;
  for (const doc::Step& s : t.steps) {
    if (table.rows.size() == kMost) break;
    table.rows.push_back(
        {std::to_string(s.index), std::to_string(s.rank), s.variant, format_time(s.seconds())});
  }
  return table;
}

std::string caption(const std::vector<const NamedTimeline*>& set) {
  std::string text = "One row per rank and lane. ";
  if (set.size() > 1)
    text +=
        "Predicted above measured, each from the start of its step. The dotted line is its end. ";
  return text + "Very short neighbours of one kind are one bar.";
}

// Rows with the same first cell become one; what one side lacks is a dash. An example: the left one
// has Compute 5 ms, the right one Compute 6 ms and Neither 1 ms. Together they are Compute, 5 ms, 6
// ms and Neither, -, 1 ms.
Table beside(Table left, const Table& right) {
  const std::size_t width = left.head.size();
  left.head.insert(left.head.end(), right.head.begin() + 1, right.head.end());
  left.numbers.resize(left.head.size(), true);
  for (const std::vector<std::string>& row : right.rows) {
    auto same = std::find_if(left.rows.begin(), left.rows.end(),
                             [&](const auto& other) { return other.front() == row.front(); });
    if (same == left.rows.end()) {
      left.rows.push_back({row.front()});
      left.rows.back().resize(width, "–");
      same = left.rows.end() - 1;
    }
    same->insert(same->end(), row.begin() + 1, row.end());
  }
  for (std::vector<std::string>& row : left.rows) row.resize(left.head.size(), "–");
  return left;
}

// The answer in words: verdict, causes, and what a hook costs. If several Timelines are shown, each
// sentence names its own.
void say_answer(const NamedTimeline& t, const trace::Explanation& e, bool named, Section& section) {
  const std::string of = named ? t.label + ": " : std::string();
  section.paragraphs.push_back(
      fmt::format("{}{}: {}.", of, trace::finding_text(e.verdict), e.verdict.reason));
  for (const std::string& cause : trace::cause_texts(e.breakdown.path))
    section.paragraphs.push_back(fmt::format("{}Cause: {}.", of, cause));
  if (e.breakdown.path.hook)
    section.paragraphs.push_back(of + "Hook: " + trace::hook_text(*e.breakdown.path.hook) + ".");
}

// What each rank spends a step on: exposed communication is moving data or waiting. A rank that
// others wait for has the shortest part of waiting and the longest of computing. One rank waits for
// nobody and has no such figure, nor has a Timeline that lacks one kind of event.
std::optional<Figure> waiting_figure(const trace::Breakdown& b, const std::string& label) {
  if (b.ranks.size() < 2 || b.computation_unknown || b.communication_unknown) return std::nullopt;
  RowChart chart{.name = "Where a step of each rank goes: " + label,
                 .label = "Time of a step",
                 .parts = {"computing", "moving data, not overlapped", "waiting for other ranks",
                           "moving or waiting", "neither"},
                 .rows = {}};
  constexpr std::size_t kMost = 32;
  for (const trace::RankRow& r : b.ranks) {
    const trace::Busy& s = r.per_step;
    if (s.window_s <= 0 || chart.rows.size() == kMost) continue;
    ChartRow row;
    row.name = fmt::format("rank {}", r.rank);
    row.value_s = s.window_s;
    row.parts_s = {s.compute_s, s.exposed_transfer_s, s.exposed_wait_s, s.exposed_unsplit_s,
                   s.idle_s};
    chart.rows.push_back(std::move(row));
  }
  if (chart.rows.size() < 2) return std::nullopt;
  return Figure{"Waiting, by rank",
                "Mean of the steps that repeat. A rank waits from its own call of a collective "
                "until the last rank has called it.",
                drawing_of(chart)};
}

Section section_of(const std::vector<const NamedTimeline*>& set) {
  Section section;
  section.title = title_of(set.front()->timeline);
  TimelineChart chart;
  chart.name = "Timeline of one step: " + section.title;
  for (const NamedTimeline* t : set) chart.groups.push_back(group_of(t->timeline));
  section.figures.push_back({"One step over time", caption(set), drawing_of(chart)});
  for (const NamedTimeline* t : set) {
    if (!t->timeline.steps.empty() && !section.figures.front().data)
      section.figures.front().data = steps_table(t->timeline);
    for (const std::string& note : t->timeline.notes)
      // Notes of imported traces begin with their own file.
      section.notes.push_back(t->explanation ? "Note: " + note
                                             : "Note on " + t->file + ": " + note);
    if (t->timeline.events.empty()) continue;
    const trace::Explanation e = explanation_of(*t);
    say_answer(*t, e, set.size() > 1, section);
    if (auto waiting = waiting_figure(e.breakdown, t->label)) {
      if (set.size() > 1) waiting->title += ": " + t->label;
      section.figures.push_back(std::move(*waiting));
    }
    Table breakdown = breakdown_table(e, t->label);
    section.table = section.table ? beside(*section.table, breakdown) : std::move(breakdown);
  }
  return section;
}

}  // namespace

bool is_predicted(const doc::Timeline& timeline) { return timeline.mode == "predicted"; }

trace::Explanation explanation_of(const NamedTimeline& timeline) {
  return timeline.explanation ? *timeline.explanation
                              : trace::explain(trace::job_of(timeline.timeline));
}

// Each Timeline is in one section. A set is opened by the first that no earlier one took in, so the
// order is the user's.
std::vector<Section> sections_of(const std::vector<NamedTimeline>& timelines) {
  std::vector<Section> sections;
  std::vector<bool> done(timelines.size(), false);
  for (std::size_t i = 0; i < timelines.size(); ++i) {
    if (done[i]) continue;
    std::vector<const NamedTimeline*> set{&timelines[i]};
    for (std::size_t j = i + 1; j < timelines.size(); ++j)
      if (!done[j] && belong_together(timelines[i].timeline, timelines[j].timeline)) {
        set.push_back(&timelines[j]);
        done[j] = true;
      }
    std::stable_sort(set.begin(), set.end(), [](const NamedTimeline* a, const NamedTimeline* b) {
      return is_predicted(a->timeline) && !is_predicted(b->timeline);
    });
    sections.push_back(section_of(set));
  }
  return sections;
}

}  // namespace linerate::report
