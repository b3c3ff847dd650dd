// A prediction and a run of the same job share a section: they have one time axis, and a column
// each in the table. That is the question a reader has: whether the prediction holds, and which
// part of a step it misses.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/report/texts.hpp"
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
  Table table{{">Step", ">Rank", "Variant", ">Duration"}, {}};
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
  for (const std::vector<std::string>& row : right.rows) {
    auto same = std::ranges::find_if(
        left.rows, [&](const auto& other) { return other.front() == row.front(); });
    if (same == left.rows.end()) {
      same = left.rows.insert(same, {row.front()});
      same->resize(width, "–");
    }
    same->insert(same->end(), row.begin() + 1, row.end());
  }
  for (std::vector<std::string>& row : left.rows) row.resize(left.head.size(), "–");
  return left;
}

// The answer in words: verdict and causes. If several Timelines are shown, each
// sentence names its own.
void say_answer(const NamedTimeline& t, const trace::Explanation& e, bool named, Section& section) {
  const std::string of = named ? t.label + ": " : std::string();
  section.paragraphs.push_back(
      fmt::format("{}{}: {}.", of, trace::finding_text(e.verdict), e.verdict.reason));
  for (const std::string& cause : trace::cause_texts(e.breakdown.path))
    section.paragraphs.push_back(fmt::format("{}Cause: {}.", of, cause));
}

// What each rank spends a step on: exposed communication is moving data or waiting. A rank that
// others wait for has the shortest part of waiting and the longest of computing. One rank waits for
// nobody and has no such figure, nor has a Timeline that lacks one kind of event.
std::optional<Figure> waiting_figure(const trace::Breakdown& b, const std::string& label) {
  if (b.ranks.size() < 2 || b.computation_unknown || b.communication_unknown) return std::nullopt;
  std::vector<doc::Json> rows;
  constexpr std::size_t kMost = 32;
  for (const trace::RankRow& r : b.ranks) {
    const trace::Busy& s = r.per_step;
    if (s.window_s <= 0 || rows.size() == kMost) continue;
    rows.push_back(chart_row(
        fmt::format("rank {}", r.rank), {s.window_s}, false,
        {s.compute_s, s.exposed_transfer_s, s.exposed_wait_s, s.exposed_unsplit_s, s.idle_s}));
  }
  if (rows.size() < 2) return std::nullopt;
  return Figure{"Waiting, by rank",
                "Mean of the steps that repeat. A rank waits from its own call of a collective "
                "until the last rank has called it.",
                drawing_of_rows("Where a step of each rank goes: " + label, "Time of a step", rows,
                                {"computing", "moving data, not overlapped",
                                 "waiting for other ranks", "moving or waiting", "neither"})};
}

Section section_of(const std::vector<const NamedTimeline*>& set) {
  Section section;
  section.title = title_of(set.front()->timeline);
  std::vector<doc::Json> groups;
  for (const NamedTimeline* t : set) groups.push_back(group_of(t->timeline));
  section.figures.push_back({"One step over time", caption(set),
                             drawing_of_groups("Timeline of one step: " + section.title, groups)});
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

// Which events of a Timeline are drawn, and how they are gathered into bars. A page cannot show a
// run of a thousand steps on a hundred ranks. It shows one step, of the slowest ranks, in as many
// lanes as a reader can tell apart.

constexpr std::size_t kDrawnRanks = 4;      // the slowest ranks of the step are shown
constexpr std::size_t kDrawnLanes = 3;      // what overlaps beyond that is drawn over the last lane
constexpr double kResolution = 1.0 / 1500;  // share of the window: shorter gaps are closed

// The part of the Timeline that is drawn.
struct Window {
  std::int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
  std::string step;  // "step 3, the median of 20"
  std::set<std::int32_t> ranks;
  bool ranks_left_out = false;

  /// Of an event or of a step.
  void reach_over(const auto& shown) {
    begin_ns = std::min(begin_ns, shown.start_ns);
    end_ns = std::max(end_ns, shown.end_ns);
    ranks.insert(shown.rank);
  }
};

// From the first event to the last, for a Timeline that states no steps.
Window whole(const doc::Timeline& t) {
  Window w;
  for (const doc::Event& e : t.events) w.reach_over(e);
  if (w.begin_ns > w.end_ns) w.begin_ns = w.end_ns = 0;
  w.ranks_left_out = w.ranks.size() > kDrawnRanks;
  if (w.ranks_left_out) w.ranks.erase(std::next(w.ranks.begin(), kDrawnRanks), w.ranks.end());
  return w;
}

// The step whose slowest rank takes the median time: neither the warm-up nor an outlier. An
// example: the slowest ranks of three steps took 5, 9 and 6 ms. The step of 6 ms is drawn. Of an
// even number it is the lower of the two in the middle.
//
// If the ranks are too many, those that took longest in this step are kept: what holds a step up is
// on them. They are drawn in ascending order all the same. The window spans all of their steps, as
// they begin apart.
Window median_step(const doc::Timeline& t) {
  std::map<std::int32_t, std::vector<const doc::Step*>> by_index;
  for (const doc::Step& s : t.steps) by_index[s.index].push_back(&s);
  if (by_index.empty()) return whole(t);
  const auto length_of = [](const doc::Step* s) { return s->end_ns - s->start_ns; };
  std::vector<std::pair<std::int64_t, std::int32_t>> lengths;  // of the slowest rank, index
  for (auto& [index, steps] : by_index) {
    std::ranges::stable_sort(steps, std::greater(), length_of);
    lengths.emplace_back(length_of(steps.front()), index);
  }
  std::ranges::sort(lengths);
  const std::int32_t chosen = lengths[(lengths.size() - 1) / 2].second;

  std::vector<const doc::Step*>& steps = by_index[chosen];
  Window w;
  w.ranks_left_out = steps.size() > kDrawnRanks;
  if (w.ranks_left_out) steps.resize(kDrawnRanks);
  for (const doc::Step* s : steps) w.reach_over(*s);
  w.step = lengths.size() == 1 ? fmt::format("step {}", chosen)
                               : fmt::format("step {}, the median of {}", chosen, lengths.size());
  return w;
}

/// Times in seconds since the start of the window.
struct Bar {
  doc::TaskKind kind = doc::TaskKind::host;
  double start_s = 0, end_s = 0;
  std::string name;  // empty for several events together
  int events = 1;
};

// Greedy interval colouring by start time: a bar goes into the first lane that is free when it
// begins. An example: bars of 0 to 4 ms, 1 to 2 ms and 5 to 6 ms. The first takes lane 0, the
// second overlaps it and takes lane 1, the third finds lane 0 free again. This needs no more lanes
// than bars overlap at once.
//
// Ends that overlap by less than a quarter of `gap_s` count as free. A reader cannot see it, and a
// lane of its own would mislead. Beyond kDrawnLanes bars are drawn over each other in the last one.
//
// Then neighbours of one kind closer than `gap_s` become one bar, if one of them is shorter than
// that. An example with 10 us: bars of 3 us at 0 and at 5 us are one bar of 8 us with two events.
// Two bars of 1 ms, 5 us apart, stay two: a reader sees them both.
std::vector<std::vector<Bar>> lay_out(std::vector<Bar> bars, double gap_s) {
  std::vector<std::vector<Bar>> lanes;
  std::ranges::stable_sort(bars, {}, &Bar::start_s);
  for (Bar& bar : bars) {
    std::size_t lane = 0;
    while (lane < lanes.size() && lanes[lane].back().end_s > bar.start_s + gap_s / 4) ++lane;
    lane = std::min(lane, kDrawnLanes - 1);
    if (lane == lanes.size()) lanes.emplace_back();
    std::vector<Bar>& target = lanes[lane];
    const bool tiny = bar.end_s - bar.start_s < gap_s;
    if (!target.empty() && target.back().kind == bar.kind &&
        bar.start_s - target.back().end_s < gap_s &&
        (tiny || target.back().end_s - target.back().start_s < gap_s || target.back().events > 1)) {
      target.back().end_s = std::max(target.back().end_s, bar.end_s);
      target.back().events += 1;
      target.back().name.clear();
    } else {
      target.push_back(std::move(bar));
    }
  }
  return lanes;
}

// Forward and backward of an imported Timeline are no work of their own, but say what the kernels
// within them belong to. An example: a rank's backward spans 10 to 20 ms. A kernel that begins at
// 12 ms is drawn as backward, one at 25 ms as computation of no known phase. If wraps nest, the one
// that began last counts.
class Wraps {
 public:
  explicit Wraps(const doc::Timeline& t) : t_(t) {
    for (const doc::Event& e : t.events)
      if (is_wrap(e)) all_[e.rank].push_back(e);
    for (auto& [rank, wraps] : all_) std::ranges::stable_sort(wraps, {}, &doc::Event::start_ns);
  }
  // Of a simulated or recorded Timeline forward and backward are computation themselves, so none is
  // a wrap.
  bool is_wrap(const doc::Event& e) const {
    return !doc::is_communication(e.kind) && !doc::is_computation(t_, e) &&
           (e.kind == doc::TaskKind::forward || e.kind == doc::TaskKind::backward);
  }
  doc::TaskKind kind_of(const doc::Event& e) const {
    const auto rank = all_.find(e.rank);
    if (e.kind != doc::TaskKind::compute || rank == all_.end()) return e.kind;
    const auto after =
        std::ranges::upper_bound(rank->second, e.start_ns, {}, &doc::Event::start_ns);
    if (after == rank->second.begin()) return e.kind;
    const doc::Event& wrap = *std::prev(after);
    return e.start_ns < wrap.end_ns ? wrap.kind : e.kind;
  }

 private:
  const doc::Timeline& t_;
  std::map<std::int32_t, std::vector<doc::Event>> all_;  // by rank, by start
};

// Workload and strategy are in the section's title: a phone has no room for them here.
std::string title_of(const doc::Timeline& t, const Window& w) {
  std::string title = t.mode.empty() ? "timeline" : t.mode;
  if (!w.step.empty()) title += ", " + w.step;
  title += ": " + format_time(static_cast<double>(w.end_ns - w.begin_ns) * 1e-9);
  if (w.ranks_left_out)
    title += fmt::format(" (the {} slowest of {} ranks)", w.ranks.size(), t.ranks);
  return title;
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
  std::vector<std::vector<const NamedTimeline*>> sets;
  for (const NamedTimeline& t : timelines) {
    const auto its = std::ranges::find_if(
        sets, [&t](const auto& set) { return belong_together(set.front()->timeline, t.timeline); });
    (its == sets.end() ? sets.emplace_back() : *its).push_back(&t);
  }
  std::vector<Section> sections;
  for (auto& set : sets) {
    std::ranges::stable_partition(set,
                                  [](const NamedTimeline* t) { return is_predicted(t->timeline); });
    sections.push_back(section_of(set));
  }
  return sections;
}

// Events are cut at the window's ends, so that one that reaches in from the step before is seen
// there.
doc::Json group_of(const doc::Timeline& timeline) {
  const Window window = median_step(timeline);
  const double length_s = static_cast<double>(window.end_ns - window.begin_ns) * 1e-9;
  const Wraps wraps(timeline);
  std::map<std::pair<std::int32_t, doc::Resource>, std::vector<Bar>> bars;
  for (const doc::Event& e : timeline.events) {
    if (e.end_ns <= window.begin_ns || e.start_ns >= window.end_ns || e.end_ns <= e.start_ns)
      continue;
    if (!window.ranks.contains(e.rank) || wraps.is_wrap(e)) continue;
    const auto seconds = [&](std::int64_t ns) {
      return static_cast<double>(std::clamp(ns, window.begin_ns, window.end_ns) - window.begin_ns) *
             1e-9;
    };
    const bool named = e.name >= 0 && to_index(e.name) < timeline.names.size();
    const doc::TaskKind kind = wraps.kind_of(e);
    bars[{e.rank, e.resource}].push_back(
        {kind, seconds(e.start_ns), seconds(e.end_ns),
         named ? timeline.names[to_index(e.name)] : std::string(name_of(kind)), 1});
  }
  doc::Json rows = doc::Json::array();
  for (auto& [key, of_row] : bars) {
    doc::Json& row =
        rows.emplace_back(doc::Json{{"rank", key.first}, {"resource", name_of(key.second)}});
    for (const std::vector<Bar>& lane : lay_out(std::move(of_row), length_s * kResolution)) {
      doc::Json& drawn = row["lanes"].emplace_back(doc::Json::array());
      for (const Bar& bar : lane)
        drawn.push_back({name_of(bar.kind), bar.start_s, bar.end_s, bar.name, bar.events});
    }
  }
  return {{"title", title_of(timeline, window)}, {"length_s", length_s}, {"rows", rows}};
}

Drawing drawing_of_groups(const std::string& name, const std::vector<doc::Json>& groups) {
  const bool any =
      std::ranges::any_of(groups, [](const doc::Json& group) { return group["length_s"] > 0; });
  return drawing_of(name, {{"kind", "timeline"}, {"groups", groups}}, any,
                    "No event with a duration to draw");
}

}  // namespace linerate::report
