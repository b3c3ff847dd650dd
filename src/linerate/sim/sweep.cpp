#include "linerate/sim/sweep.hpp"

#include <algorithm>
#include <array>

namespace linerate::sim {
namespace {

using doc::Task;

template <bool kStarts>
double sweep_alike(const doc::TaskGraph& graph, Prices& prices, TaskTimes& times) {
  std::array<double, doc::kResourceNames.size()> free{};
  double* const end = times.end.data();
  double last = 0;
  const Task* const tasks = graph.tasks.data();
  const std::uint32_t* const preds = graph.preds.data();
  const std::uint32_t* const pred_begin = graph.pred_begin.data();
  const std::size_t count = graph.tasks.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Task& task = tasks[i];
    double& resource = free[static_cast<std::size_t>(task.resource)];
    double start = resource;
    for (std::uint32_t p = pred_begin[i]; p < pred_begin[i + 1]; ++p)
      start = std::max(start, end[preds[p]]);
    const double finish = start + prices.seconds(task);
    if constexpr (kStarts) times.start[i] = start;
    end[i] = resource = finish;
    last = std::max(last, finish);
  }
  return last;
}

bool is_joint(const Task& task) {
  return task.rank == doc::kEveryRank && doc::is_communication(task.kind);
}

// The state of one sweep over several classes.
class ClassSweep {
 public:
  ClassSweep(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
             TaskTimes& times)
      : graph_(graph),
        prices_(prices),
        classes_(classes),
        times_(times),
        free_(classes.classes.size()) {}

  double run(std::span<const std::uint32_t> step_begins) {
    std::size_t step = 0;
    for (std::uint32_t i = 0; i < graph_.tasks.size(); ++i) {
      if (step < step_begins.size() && step_begins[step] == i) ++step, begin_step();
      const Task& task = graph_.tasks[i];
      if (is_joint(task)) {
        run_joint(i, task);
      } else if (task.rank != doc::kEveryRank) {
        run_single(i, task, classes_.of_rank(task.rank));
      } else {
        for (std::int32_t c = 0; c < classes_.count(); ++c) run_single(i, task, c);
      }
    }
    return last_;
  }

 private:
  using Free = std::array<double, doc::kResourceNames.size()>;

  void begin_step() {
    for (std::size_t c = 0; c < free_.size(); ++c)
      free_[c][static_cast<std::size_t>(doc::Resource::compute)] += classes_.classes[c].delay_s;
  }

  void run_single(std::uint32_t i, const Task& task, std::int32_t c) {
    const RankClass& speed = classes_.classes[static_cast<std::size_t>(c)];
    double& resource = free_[static_cast<std::size_t>(c)][static_cast<std::size_t>(task.resource)];
    double start = resource;
    for (std::uint32_t p = graph_.pred_begin[i]; p < graph_.pred_begin[i + 1]; ++p)
      start = std::max(start, arrival(graph_.preds[p], c, task));
    const double factor = task.resource == doc::Resource::network ? 1 : speed.compute_factor;
    record(times_.slot(i, c), start, resource = start + factor * prices_.seconds(task));
  }

  void run_joint(std::uint32_t i, const Task& task) {
    double start = 0;
    const auto network = static_cast<std::size_t>(task.resource);
    for (const Free& free : free_) start = std::max(start, free[network]);
    for (std::uint32_t p = graph_.pred_begin[i]; p < graph_.pred_begin[i + 1]; ++p) {
      const std::uint32_t pred = graph_.preds[p];
      for (std::uint32_t s = times_.first[pred]; s < times_.first[pred + 1]; ++s)
        start = std::max(start, times_.end[s]);
    }
    const double end = start + prices_.seconds(task);
    for (Free& free : free_) free[network] = end;
    record(times_.first[i], start, end);
  }

  // A rank's own task may wait for everybody's: then for its own part of it.
  double arrival(std::uint32_t pred, std::int32_t c, const Task&) const {
    return times_.end[times_.slot(pred, c)];
  }

  void record(std::uint32_t slot, double start, double end) {
    times_.start[slot] = start;
    times_.end[slot] = end;
    last_ = std::max(last_, end);
  }

  const doc::TaskGraph& graph_;
  Prices& prices_;
  const RankClasses& classes_;
  TaskTimes& times_;
  std::vector<Free> free_;
  double last_ = 0;
};

}  // namespace

double sweep(const doc::TaskGraph& graph, Prices& prices, TaskTimes& times, bool starts) {
  times.first.clear();
  if (times.end.size() < graph.tasks.size()) times.end.resize(graph.tasks.size());
  if (!starts) return sweep_alike<false>(graph, prices, times);
  if (times.start.size() < graph.tasks.size()) times.start.resize(graph.tasks.size());
  return sweep_alike<true>(graph, prices, times);
}

void lay_out_slots(const doc::TaskGraph& graph, const RankClasses& classes, TaskTimes& times) {
  times.first.resize(graph.tasks.size() + 1);
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    const Task& task = graph.tasks[i];
    times.first[i] = next;
    const bool shared = task.rank != doc::kEveryRank || is_joint(task);
    next += shared ? 1 : static_cast<std::uint32_t>(classes.count());
  }
  times.first.back() = next;
  if (times.end.size() < next) times.end.resize(next), times.start.resize(next);
}

double sweep(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
             std::span<const std::uint32_t> step_begins, TaskTimes& times) {
  lay_out_slots(graph, classes, times);
  return ClassSweep(graph, prices, classes, times).run(step_begins);
}

}  // namespace linerate::sim
