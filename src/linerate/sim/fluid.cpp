#include "linerate/sim/fluid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/sim/sweep.hpp"

namespace linerate::sim {
namespace {

using doc::Resource;
using doc::Task;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kResources = doc::kResourceNames.size();

// Work in progress: `left` seconds at full speed as of `since`, going at `rate`.
struct Progress {
  std::uint32_t task = kNone;
  double left = 0, rate = 1, since = 0;

  bool active() const { return task != kNone; }
  double end() const { return active() ? since + left / rate : kNever; }
  void set_rate(double now, double new_rate) {
    if (rate == new_rate) return;
    left = std::max(0.0, left - (now - since) * rate);
    since = now;
    rate = new_rate;
  }
};

// The tasks of one class on one resource, in order.
struct Lane {
  std::vector<std::uint32_t> tasks;
  std::size_t head = 0;
  Progress running;

  std::uint32_t next() const {
    return running.active() || head == tasks.size() ? kNone : tasks[head];
  }
};

struct ClassState {
  std::array<Lane, kResources> lanes;
  bool was_computing = false;

  Lane& lane(Resource r) { return lanes[static_cast<std::size_t>(r)]; }
  bool computing() const {
    return lanes[static_cast<std::size_t>(Resource::compute)].running.active() ||
           lanes[static_cast<std::size_t>(Resource::codec)].running.active();
  }
};

class Fluid {
 public:
  Fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
        std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
        TaskTimes& times)
      : graph_(graph),
        prices_(prices),
        classes_(classes),
        contention_(contention),
        times_(times),
        states_(classes.classes.size()),
        next_end_(states_.size(), kNever),
        step_begins_(step_begins.begin(), step_begins.end()),
        delayed_(states_.size(), kNone) {
    lay_out_slots(graph, classes, times);
    done_.assign(times.first.back(), false);
    blocked_by_.resize(times.first.back());
    fill_lanes();
  }

  double run() {
    start_all();
    for (double end = next_end(); end < kNever; end = next_end()) {
      now_ = end;
      finish_due();
      start_all();
    }
    LINERATE_CHECK(finished_ == done_.size(),
                   fmt::format("{}: {} of {} tasks ran", graph_.name, finished_, done_.size()));
    return now_;
  }

 private:
  bool joins_all(const Task& task) const {
    return task.rank == doc::kEveryRank && doc::is_communication(task.kind);
  }

  void fill_lanes() {
    for (std::uint32_t i = 0; i < graph_.tasks.size(); ++i) {
      const Task& task = graph_.tasks[i];
      const auto lane = static_cast<std::size_t>(task.resource);
      if (task.rank != doc::kEveryRank) {
        states_[static_cast<std::size_t>(classes_.of_rank(task.rank))].lanes[lane].tasks.push_back(
            i);
      } else {
        for (ClassState& state : states_) state.lanes[lane].tasks.push_back(i);
      }
      for (std::uint32_t s = times_.first[i]; s < times_.first[i + 1]; ++s)
        blocked_by_[s] = {graph_.pred_begin[i], 0};
    }
  }

  // A class's delay is due with its first computation of each step.
  double delay_of(std::uint32_t task, std::size_t c) {
    const double delay = classes_.classes[c].delay_s;
    if (delay == 0 || step_begins_.empty()) return 0;
    const auto step = static_cast<std::uint32_t>(
        std::upper_bound(step_begins_.begin(), step_begins_.end(), task) - step_begins_.begin());
    if (delayed_[c] == step) return 0;
    delayed_[c] = step;
    return delay;
  }

  // A predecessor is met for class c when its own part is done; a joint task waits for all parts.
  bool ready(std::uint32_t i, std::uint32_t slot, std::int32_t c) {
    Blocked& at = blocked_by_[slot];
    const bool joint = joins_all(graph_.tasks[i]);
    for (; at.pred < graph_.pred_begin[i + 1]; ++at.pred, at.part = 0) {
      const std::uint32_t pred = graph_.preds[at.pred];
      if (!joint) {
        if (!done_[times_.slot(pred, c)]) return false;
        continue;
      }
      const std::uint32_t parts = times_.first[pred + 1] - times_.first[pred];
      for (; at.part < parts; ++at.part)
        if (!done_[times_.first[pred] + at.part]) return false;
    }
    return true;
  }

  double network_rate(bool computing) const {
    return computing ? 1 / contention_.communication_slowdown : 1;
  }
  double compute_rate(bool communicating) const {
    return communicating ? 1 / contention_.compute_slowdown : 1;
  }

  void start_all() {
    bool again = true;
    while (again) {
      for_touched([this](std::size_t c) { start_class(c); });
      start_joint();
      // Tasks without duration end at once and may free others at this very moment.
      again = finish_due();
    }
    set_rates();
  }

  // News reaches a class through its own tasks, a collective, or another rank's task.
  template <typename Action>
  void for_touched(Action action) {
    if (all_touched_) {
      for (std::size_t c = 0; c < states_.size(); ++c) action(c);
    } else {
      for (const std::size_t c : touched_) action(c);
    }
  }

  void start_class(std::size_t c) {
    for (std::size_t r = 0; r < kResources; ++r) {
      Lane& lane = states_[c].lanes[r];
      const std::uint32_t i = lane.next();
      if (i == kNone || joins_all(graph_.tasks[i])) continue;
      const std::uint32_t slot = times_.slot(i, static_cast<std::int32_t>(c));
      if (!ready(i, slot, static_cast<std::int32_t>(c))) continue;
      double work = prices_.seconds(graph_.tasks[i]);
      const auto resource = static_cast<Resource>(r);
      if (resource != Resource::network) work *= classes_.classes[c].compute_factor;
      if (resource == Resource::compute) work += delay_of(i, c);
      lane.running = {i, work, 1, now_};
      times_.start[slot] = now_;
      next_end_[c] = std::min(next_end_[c], lane.running.end());
    }
  }

  // The collective that heads every network lane, once all have arrived.
  void start_joint() {
    if (joint_.active()) return;
    const std::uint32_t i = states_.front().lane(Resource::network).next();
    if (i == kNone || !joins_all(graph_.tasks[i])) return;
    const std::uint32_t slot = times_.first[i];
    if (!ready(i, slot, 0)) return;
    for (ClassState& state : states_)
      if (state.lane(Resource::network).next() != i) return;
    joint_ = {i, prices_.seconds(graph_.tasks[i]), 1, now_};
    times_.start[slot] = now_;
    all_touched_ = true;
  }

  void set_rates() {
    for_touched([this](std::size_t c) {
      ClassState& state = states_[c];
      const bool computing = state.computing();
      computing_ += static_cast<int>(computing) - static_cast<int>(state.was_computing);
      state.was_computing = computing;
      const bool communicating = joint_.active() || state.lane(Resource::network).running.active();
      next_end_[c] = kNever;
      for (std::size_t r = 0; r < kResources; ++r) {
        Progress& p = state.lanes[r].running;
        if (!p.active()) continue;
        const auto resource = static_cast<Resource>(r);
        if (resource == Resource::network) p.set_rate(now_, network_rate(computing));
        if (resource == Resource::compute || resource == Resource::codec)
          p.set_rate(now_, compute_rate(communicating));
        next_end_[c] = std::min(next_end_[c], p.end());
      }
    });
    if (joint_.active()) joint_.set_rate(now_, network_rate(computing_ > 0));
    touched_.clear();
    all_touched_ = false;
  }

  double next_end() const {
    return std::min(joint_.end(), *std::min_element(next_end_.begin(), next_end_.end()));
  }

  // Ends whatever is due at now_. Returns whether anything was.
  bool finish_due() {
    bool any = false;
    if (joint_.active() && joint_.end() <= now_) {
      complete(times_.first[joint_.task]);
      joint_ = {};
      for (ClassState& state : states_) ++state.lane(Resource::network).head;
      all_touched_ = any = true;
    }
    for (std::size_t c = 0; c < states_.size(); ++c) {
      if (next_end_[c] > now_) continue;
      finish_class(c);
      any = true;
    }
    return any;
  }

  void finish_class(std::size_t c) {
    next_end_[c] = kNever;
    for (Lane& lane : states_[c].lanes) {
      if (lane.running.end() <= now_) {
        complete(times_.slot(lane.running.task, static_cast<std::int32_t>(c)));
        lane.running = {};
        ++lane.head;
      }
      next_end_[c] = std::min(next_end_[c], lane.running.end());
    }
    touched_.push_back(c);
  }

  void complete(std::uint32_t slot) {
    done_[slot] = true;
    times_.end[slot] = now_;
    ++finished_;
  }

  struct Blocked {
    std::uint32_t pred = 0, part = 0;
  };

  const doc::TaskGraph& graph_;
  Prices& prices_;
  const RankClasses& classes_;
  const doc::Contention& contention_;
  TaskTimes& times_;
  std::vector<ClassState> states_;
  std::vector<double> next_end_;  // [classes] of their own running tasks
  std::vector<std::uint32_t> step_begins_;
  std::vector<std::uint32_t> delayed_;  // [classes] step whose delay was charged last
  std::vector<bool> done_;
  std::vector<Blocked> blocked_by_;   // [slots] the predecessor that is not met yet
  std::vector<std::size_t> touched_;  // classes with news since rates were set
  bool all_touched_ = true;
  int computing_ = 0;  // classes that compute
  Progress joint_;
  double now_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace

double run_fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
                 std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
                 TaskTimes& times) {
  return Fluid(graph, prices, classes, step_begins, contention, times).run();
}

}  // namespace linerate::sim
