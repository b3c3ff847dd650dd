// The runner's core on a virtual clock: a step machine a rank, driven by durations instead of
// threads, devices and networks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <tuple>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/sim/rank_classes.hpp"

namespace linerate::support {

struct RunTask {
  exec::TaskId id;
  double start_s = 0, end_s = 0;
};

/// When a rank opens its next step.
enum class Opening {
  all_at_once,         // nothing but lanes and edges holds a step
  one_after_the_other  // once the computation of the one before is over (exec::rehearse)
};

/// Every rank of a Plan for some steps. Tasks start when the machine says that they could, by the
/// moments that it was given: what emulated tasks wait for (Runner).
class VirtualRun {
 public:
  VirtualRun(const doc::Plan& plan, const cost::CostModel& model, int steps,
             Opening opening = Opening::all_at_once)
      : opening_(opening),
        steps_(steps),
        plan_(std::make_shared<const doc::Plan>(plan)),
        prices_(model, plan.ranks),
        ranks_(static_cast<std::size_t>(plan.ranks)) {
    for (int r = 0; r < plan.ranks; ++r) rank(r).machine.emplace(plan_, r);
    for (const doc::RankSpeed& s : model.cluster().rank_speeds)
      if (s.rank < plan.ranks) rank(s.rank).speed = s;
    for (int r = 0; r < plan.ranks; ++r) open_steps(r);
    while (!queue_.empty()) {
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.at;
      for (std::size_t i = event.first; i < event.last; ++i) {
        const auto [r, id] = ending_[i];  // a copy: what ends here makes more of them
        done(r, id);
      }
    }
  }

  /// In the order in which they started, by lane.
  const std::array<std::vector<RunTask>, doc::kLanes>& lanes(int r) const {
    return ranks_[static_cast<std::size_t>(r)].lanes;
  }
  bool finished() const {
    for (const Rank& r : ranks_)
      if (!r.machine->idle()) return false;
    return true;
  }

 private:
  struct Rank {
    std::optional<exec::StepMachine> machine;
    doc::RankSpeed speed;
    std::array<std::vector<RunTask>, doc::kLanes> lanes;
    std::int64_t computing = -1;  // the step whose delay was taken last
    double compute_free = 0;
    std::deque<exec::TaskId> channel;  // submitted collectives, the first under way
  };
  using RankTask = std::pair<int, exec::TaskId>;
  struct Event {
    double at = 0;
    std::size_t first = 0, last = 0;  // in ending_; events are made in this order
    bool operator>(const Event& o) const { return at > o.at || (at == o.at && first > o.first); }
  };
  /// A collective some members of a part have come to.
  struct Meeting {
    std::vector<RankTask> members;
    double left_s = -1;  // of a broadcast: its root has come to it
  };

  // Moments of the machine are picoseconds here: its integers add no error that counts.
  static std::int64_t moment(double seconds) { return std::llround(seconds * 1e12); }
  static double seconds_of(std::int64_t moment) { return static_cast<double>(moment) * 1e-12; }

  bool computed(const exec::StepMachine& machine, std::int64_t step) const {
    if (!machine.is_open(step)) return true;
    const auto& tasks = machine.index(machine.variant(step))
                            .lanes[static_cast<std::size_t>(doc::Resource::compute)];
    return tasks.empty() || machine.is_done({step, tasks.back()});  // a lane runs in order
  }

  void open_steps(int r) {
    exec::StepMachine& machine = *rank(r).machine;
    while (machine.next_step() < steps_) {
      if (opening_ == Opening::one_after_the_other && machine.next_step() > 0 &&
          !computed(machine, machine.next_step() - 1))
        return;
      exec::Moves moves;
      machine.begin_step(-1, moves, machine.free_at(doc::Resource::compute));
      start(r, moves);
    }
  }

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  void done(int r, exec::TaskId id) {
    const doc::Task& task = rank(r).machine->task(id);
    const bool network = task.resource == doc::Resource::network;
    exec::Moves moves;
    rank(r).machine->done(id, moves, moment(now_));
    if (network) {
      rank(r).channel.pop_front();
      if (!rank(r).channel.empty()) join(r, rank(r).channel.front());
    }
    start(r, moves);
    open_steps(r);
  }

  void start(int r, const exec::Moves& moves) {
    for (const exec::TaskId& id : moves.start) {
      const doc::Task& task = rank(r).machine->task(id);
      if (task.resource == doc::Resource::network) {
        rank(r).channel.push_back(id);
        if (rank(r).channel.size() == 1) join(r, id);
      } else {
        work(r, id, task);
      }
    }
  }

  void work(int r, exec::TaskId id, const doc::Task& task) {
    Rank& mine = rank(r);
    double at = seconds_of(mine.machine->could_start_at(id)), seconds = task.seconds;
    const bool compute = task.resource == doc::Resource::compute;
    if (compute || task.resource == doc::Resource::codec) seconds *= mine.speed.compute_factor;
    if (compute && mine.computing < id.step) {
      // The lane is held once a step, from when it is free.
      mine.compute_free += mine.speed.delay_s * static_cast<double>(id.step - mine.computing);
      mine.computing = id.step;
      at = std::max(at, mine.compute_free);
    }
    note(r, id, at);
    if (compute) mine.compute_free = at + seconds;
    finish(std::array{RankTask{r, id}}, at + seconds);
  }

  void join(int r, exec::TaskId id) {
    note(r, id, now_);
    const doc::Task& task = rank(r).machine->task(id);
    const std::int32_t part = plan_->group_of(task).part_of(r);
    Meeting& meeting = meetings_[{id.step, id.task, part}];
    meeting.members.emplace_back(r, id);
    const auto size = plan_->group_of(task).size_of_part(part, plan_->ranks);
    if (task.kind == doc::TaskKind::broadcast) return pass_on(meeting, task, part, size);
    if (static_cast<std::int32_t>(meeting.members.size()) < size) return;
    finish(meeting.members, now_ + prices_.seconds_of_part(task, size));
  }

  /// A broadcast, to those that have come to it.
  void pass_on(Meeting& meeting, const doc::Task& task, std::int32_t part, std::int32_t size) {
    const auto& parts = plan_->group_of(task).parts;
    const auto position = [&](int r) {
      if (parts.empty()) return r;
      const auto& ranks = parts[static_cast<std::size_t>(part)];
      return static_cast<int>(std::find(ranks.begin(), ranks.end(), r) - ranks.begin());
    };
    if (position(meeting.members.back().first) == task.root) meeting.left_s = now_;
    if (meeting.left_s < 0) return;
    const sim::BroadcastTime time = prices_.broadcast_of_part(task, size);
    for (const auto& member : std::exchange(meeting.members, {}))
      finish(std::array{member},
             std::max(now_ + time.own_s,
                      meeting.left_s + time.reaches_s(sim::share_of_way(position(member.first),
                                                                        task.root, size))));
  }

  std::vector<RunTask>& lane_of(int r, exec::TaskId id) {
    return rank(r).lanes[static_cast<std::size_t>(rank(r).machine->task(id).resource)];
  }

  void note(int r, exec::TaskId id, double at) { lane_of(r, id).push_back({id, at, -1}); }

  void finish(std::span<const RankTask> tasks, double at) {
    for (const auto& [r, id] : tasks) {
      auto& lane = lane_of(r, id);
      const auto is_this = [&id = id](const RunTask& t) { return t.id == id; };
      std::find_if(lane.rbegin(), lane.rend(), is_this)->end_s = at;
    }
    const std::size_t first = ending_.size();
    ending_.insert(ending_.end(), tasks.begin(), tasks.end());
    queue_.push({at, first, ending_.size()});
  }

  Opening opening_;
  std::int64_t steps_;
  std::shared_ptr<const doc::Plan> plan_;
  sim::Prices prices_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<std::int64_t, std::uint32_t, std::int32_t>, Meeting> meetings_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::vector<RankTask> ending_;  // of all events
  double now_ = 0;
};

}  // namespace linerate::support
