// Makes a table of a Timeline. Cells are means over ranks, but for communication, where the least
// counts. An example: three ranks come to an all-reduce at 1, 3 and 2 ms, and it ends at 7 ms on
// all of them. The events last 6, 4 and 5 ms. Rank 1 came last and waited for nobody, so the
// transfer took 4 ms.
#include "linerate/compare/step_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/scaling_factor.hpp"

namespace linerate::compare {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

struct KeptStep {
  int index = 0;
  StepKind kind;
};

/// The steps that are worth comparing, in order of index. The first `warm_up` steps are dropped. So
/// are steps of a phase that no later step has, if later steps repeat another phase: DDP's first
/// step, or a compressor's warm-up. The step before a cycle's first is the cycle's last.
std::vector<KeptStep> kept_steps(const doc::Timeline& timeline, int warm_up, int& dropped) {
  std::map<int, std::string> all;
  for (const doc::Step& s : timeline.steps) all[s.index] = s.variant;
  std::vector<std::pair<int, std::string>> steps(all.begin(), all.end());
  std::vector<KeptStep> kept;
  bool warm = false;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    // A phase that no later step has is a warm-up's, if later steps repeat others; a cycle may be
    // there once.
    std::map<std::string_view, int> later;
    for (std::size_t k = i + 1; k < steps.size(); ++k) ++later[doc::phase_of(steps[k].second)];
    const bool repeats = std::ranges::any_of(later, [](const auto& v) { return v.second > 1; });
    const bool warms_up = later.count(doc::phase_of(steps[i].second)) == 0 && !later.empty() &&
                          (repeats || steps[i].second.starts_with(doc::kFirstStep));
    warm = warm || (i >= to_index(std::max(0, warm_up)) && !warms_up);
    const std::size_t before = (i == 0 ? steps.size() : i) - 1;
    if (warm) kept.push_back({steps[i].first, {steps[i].second, steps[before].second}});
  }
  dropped = static_cast<int>(steps.size() - kept.size());
  return kept;
}

// The parameters of a set in one text, sorted, one a line.
std::string set_text(const doc::Timeline& timeline, std::int32_t set) {
  std::vector<std::string> names;
  for (const std::int32_t p : timeline.parameter_sets[to_index(set)])
    names.push_back(timeline.parameter_names[to_index(p)]);
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, "\n"));
}

/// The events of each step and rank, in the order of their starts.
using StepEvents = std::map<std::pair<int, int>, std::vector<const doc::Event*>>;

StepEvents events_by_step(const doc::Timeline& timeline) {
  StepEvents events;
  for (const doc::Event& e : timeline.events) events[{e.step, e.rank}].push_back(&e);
  for (auto& [key, list] : events) std::ranges::stable_sort(list, {}, &doc::Event::start_ns);
  return events;
}

class Builder {
 public:
  Builder(const doc::Timeline& timeline, int warm_up) : timeline_(timeline) {
    wrapped_ = std::ranges::any_of(timeline.events, [&](const doc::Event& e) {
      return doc::is_computation(e.kind) && !doc::is_computation(timeline, e);
    });
    for (std::size_t i = 0; i < timeline.parameter_sets.size(); ++i)
      sets_.push_back(set_text(timeline, static_cast<std::int32_t>(i)));
    for (const auto& [index, kind] : kept_steps(timeline, warm_up, table_.dropped)) {
      row_[index] = table_.steps.size();
      table_.steps.push_back(kind);
    }
  }

  StepTable build() {
    add_step_times();
    add_communication();
    std::map<TaskKey, Cells> tasks;
    for (const auto& [where, events] : events_by_step(timeline_)) {
      const auto row = row_.find(where.first);
      if (row == row_.end()) continue;
      std::map<TaskKey, int> seen;
      std::map<TaskKey, double> took;
      for (const doc::Event* e : events) {
        if (wrapped_ && e->kind == doc::TaskKind::compute) continue;
        TaskKey key = key_of(*e);
        // K-FAC's factors cut a layer's pass into pieces.
        const bool is_pass =
            e->kind == doc::TaskKind::forward || e->kind == doc::TaskKind::backward;
        if (!is_pass) key.phase = seen[key]++;
        took[key] += e->seconds();
      }
      for (const auto& [key, seconds] : took) tasks[key][row->second].push_back(seconds);
    }
    for (const auto& [key, cells] : tasks) add_task(key, cells);
    return std::move(table_);
  }

 private:
  using Cells = std::map<std::size_t, std::vector<double>>;  // row -> one value a rank

  TaskKey key_of(const doc::Event& e) const {
    const std::string name = e.name >= 0 ? timeline_.names[to_index(e.name)] : "";
    return {e.kind, e.set >= 0 ? sets_[to_index(e.set)] : "", name, 0};
  }

  void add_step_times() {
    Cells cells;
    for (const doc::Step& s : timeline_.steps)
      if (const auto row = row_.find(s.index); row != row_.end())
        cells[row->second].push_back(s.seconds());
    table_.step_s = mean_column(cells);
  }

  // Goes by time and not by an event's step, because messages of one step may run during the
  // computation of the next. For each rank, the spans of communication and of exposed communication
  // are clipped to each step.
  void add_communication() {
    struct Activity {
      std::vector<Span> communication, computation;
      std::map<int, Span> steps;
    };
    std::map<int, Activity> ranks;
    for (const doc::Event& e : timeline_.events) {
      if (doc::is_communication(e.kind))
        ranks[e.rank].communication.push_back({e.start_ns, e.end_ns});
      else if (doc::is_computation(timeline_, e))
        ranks[e.rank].computation.push_back({e.start_ns, e.end_ns});
    }
    for (const doc::Step& s : timeline_.steps)
      ranks[s.rank].steps[s.index] = {s.start_ns, s.end_ns};
    Cells cells, busy;
    for (auto& [rank, activity] : ranks) {
      const SpanSet communication = union_of(std::move(activity.communication));
      const SpanSet exposed =
          doc::exposed_communication(communication, union_of(std::move(activity.computation)));
      for (const auto& [index, step] : activity.steps) {
        const auto row = row_.find(index);
        const auto next = activity.steps.find(index + 1);
        const Span window = doc::window_of_step(
            step, next == activity.steps.end() ? std::nullopt : std::optional(next->second));
        const SpanSet sent = clipped(communication, window);
        if (row == row_.end() || sent.empty()) continue;
        cells[row->second].push_back(seconds_of(clipped(exposed, window)));
        busy[row->second].push_back(seconds_of(sent));
      }
    }
    table_.exposed_s = mean_column(cells);
    table_.communication_s = mean_column(busy);
  }

  // The mean over the ranks that have a value; kAbsent in a step without any.
  Column mean_column(const Cells& cells) const {
    Column column(table_.steps.size(), kAbsent);
    for (const auto& [row, values] : cells) column[row] = mean(values);
    return column;
  }

  // Adds the task's column, and its values to the sum of its kind.
  void add_task(const TaskKey& key, const Cells& cells) {
    Column column = mean_column(cells);
    if (doc::is_communication(key.kind))
      for (const auto& [row, values] : cells) column[row] = std::ranges::min(values);
    Column& sum = table_.kinds.try_emplace(key.kind, column.size(), kAbsent).first->second;
    for (std::size_t i = 0; i < column.size(); ++i)
      if (!std::isnan(column[i])) sum[i] = (std::isnan(sum[i]) ? 0 : sum[i]) + column[i];
    table_.tasks.emplace(key, std::move(column));
  }

  const doc::Timeline& timeline_;
  bool wrapped_ = false;  // its kernels lie in its forward and backward, which are the tasks
  std::vector<std::string> sets_;
  std::map<int, std::size_t> row_;
  StepTable table_;
};

}  // namespace

StepTable tabulate(const doc::Timeline& timeline, int warm_up) {
  StepTable table = Builder(timeline, warm_up).build();
  if (table.step_s.empty())
    throw InputError(
        timeline.source.empty() ? "timeline" : timeline.source,
        fmt::format(
            "no step is left to compare: expected more than the {} that --warm-up drops, found {}; "
            "record more steps or lower --warm-up (default: a tenth, at least two)",
            std::max(0, warm_up), table.dropped));
  return table;
}

// 12 steps drop 2, 100 steps drop 10, and 4 steps none.
int default_warm_up(const doc::Timeline& timeline) {
  std::set<int> steps;
  for (const doc::Step& s : timeline.steps) steps.insert(s.index);
  const int n = static_cast<int>(steps.size());
  return n < 5 ? 0 : std::max(2, n / 10);
}

}  // namespace linerate::compare
