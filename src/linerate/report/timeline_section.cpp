#include "linerate/report/timeline_section.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/text.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/report/breakdown_table.hpp"

namespace linerate::report {
namespace {

bool predicted(const doc::Timeline& t) { return t.mode == "predicted"; }

// One side may be unnamed (an imported trace knows no strategy): then only equal texts join.
bool belong_together(const doc::Timeline& a, const doc::Timeline& b) {
  return a.workload == b.workload && a.strategy == b.strategy && a.ranks == b.ranks &&
         predicted(a) != predicted(b) && !a.workload.empty();
}

std::string title_of(const doc::Timeline& t) {
  std::string title = t.workload.empty() ? "Timeline" : t.workload;
  if (!t.strategy.empty()) title += ", " + t.strategy;
  return title + fmt::format(", {} rank{}", t.ranks, t.ranks == 1 ? "" : "s");
}

// Steps and their durations as the Timeline states them.
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
  std::string text = "One row per rank and resource. ";
  if (set.size() > 1)
    text +=
        "Predicted above measured, both from the start of their step; the dotted line is its end. ";
  return text + "Very short neighbours of one kind are one bar.";
}

// Rows with the same first cell become one; what one side lacks is a dash.
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

Section section_of(const std::vector<const NamedTimeline*>& set) {
  Section section;
  section.title = title_of(set.front()->timeline);
  TimelineChart chart;
  chart.name = "Timeline of one step: " + section.title;
  for (const NamedTimeline* t : set) {
    chart.groups.push_back(group_of(t->timeline));
    for (const std::string& note : t->timeline.notes)
      section.paragraphs.push_back("Note on " + t->file + ": " + note);
  }
  section.figures.push_back({"One step over time", caption(set), drawing_of(chart)});
  for (const NamedTimeline* t : set) {
    if (!t->timeline.steps.empty() && !section.figures.back().data)
      section.figures.back().data = steps_table(t->timeline);
    Table breakdown = breakdown_table(t->timeline, t->label);
    if (breakdown.head.empty()) continue;
    section.table = section.table ? beside(*section.table, breakdown) : std::move(breakdown);
  }
  return section;
}

}  // namespace

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
      return predicted(a->timeline) && !predicted(b->timeline);
    });
    sections.push_back(section_of(set));
  }
  return sections;
}

}  // namespace linerate::report
