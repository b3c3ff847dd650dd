// Devices of all ranks on a virtual clock: streams are queues, each task takes as long as a test
// says, collectives meet in one queue a group, and whatever is touched too early is an error.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/exec/streams/stream_runner.hpp"

namespace linerate::support {

// A device that runs nothing: it writes down what a StreamRunner asks of it.

struct StreamCall {
  /// The last three are of an exec::StreamClock.
  enum class Kind : std::uint8_t { enqueue, record, wait, host_wait, mark, mark_wait, host_clock };
  Kind kind = Kind::enqueue;
  exec::StreamId stream = -1;
  exec::EventId event = -1;  // of a mark: its number among all that were set
  exec::TaskId id = {};
  std::int32_t variant = 0;

  bool operator==(const StreamCall&) const = default;
};

class RecordedStreams : public exec::StreamDevice {
 public:
  explicit RecordedStreams(const doc::Plan& plan) : plan_(plan) {}

  void enqueue(exec::StreamId stream, const exec::StreamWork& work) override {
    const auto variant = static_cast<std::int32_t>(&work.graph - plan_.variants.data());
    calls.push_back({StreamCall::Kind::enqueue, stream, -1, work.id, variant});
  }
  void record(exec::EventId event, exec::StreamId stream) override {
    calls.push_back({StreamCall::Kind::record, stream, event});
  }
  void wait(exec::StreamId stream, exec::EventId event) override {
    calls.push_back({StreamCall::Kind::wait, stream, event});
  }
  void host_wait(exec::EventId event) override {
    calls.push_back({StreamCall::Kind::host_wait, -1, event});
  }

  std::vector<StreamCall> calls;

 private:
  const doc::Plan& plan_;
};

/// What every rank enqueues.
struct StreamJob {
  std::shared_ptr<const doc::Plan> plan;
  std::vector<std::shared_ptr<const exec::StreamProgram>> programs;  // by rank
  std::vector<std::vector<StreamCall>> calls;                        // by rank
  std::vector<exec::StreamCounts> counts;                            // by rank
};

/// What a simulation changes in what was recorded.
struct Tampering {
  int rank = -1;             // -1: nothing
  std::size_t left_out = 0;  // this call of the rank is not made
  exec::TaskId slow = {};    // this task of the rank takes longer than everything else
};

/// Runs the calls of every rank; error() says what went wrong first. It knows the Plan and the
/// uses of payloads; of streams it knows only what a device does.
class SimulatedDevices {
 public:
  SimulatedDevices(const StreamJob& job, std::uint64_t seed, Tampering tampering = {})
      : job_(job), plan_(*job.plan), seed_(seed), tampering_(tampering) {
    for (std::size_t r = 0; r < job.calls.size(); ++r) ranks_.emplace_back(job, r);
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) schedule(0, [this, r] { go_on(r); });
    while (!queue_.empty() && error_.empty()) {
      const auto event = queue_.top();
      queue_.pop();
      now_ = event.at;
      event.act();
    }
    for (int r = 0; error_.empty() && r < static_cast<int>(ranks_.size()); ++r)
      if (!rank(r).is_over()) fail(r, "does not come to its end");
  }

  /// Empty if all went well.
  const std::string& error() const { return error_; }
  std::int64_t tasks() const { return tasks_; }

  /// From when its stream had come to a task to its end, on the virtual clock.
  struct Lasted {
    double begin = 0, end = 0;
  };
  const Lasted& lasted(int r, exec::TaskId id) const { return lasted_.at({r, id.step, id.task}); }
  /// When a mark was over, by its number; never: infinity.
  double mark_at(int r, exec::EventId mark) const {
    const Rank& mine = ranks_[to_index(r)];
    return mine.points[mine.marks.at(mark)].at;
  }
  /// What the host read when it read its clock the n-th time.
  double clock_at(int r, std::size_t n) const { return ranks_[to_index(r)].clock_read_at.at(n); }
  /// When the host made a call.
  double called_at(int r, std::size_t call) const { return ranks_[to_index(r)].called_at.at(call); }

 private:
  using Kind = StreamCall::Kind;
  /// A point of a stream that was recorded: for one call of record.
  struct Point {
    bool is_over = false;
    double at = std::numeric_limits<double>::infinity();
    std::vector<std::function<void()>> waiting;
  };
  /// One array of a rank. Each write makes a new version; from its beginning to its end nobody else
  /// may look.
  struct Memory {
    std::int64_t writes_enqueued = 0, writes_begun = 0, writes_ended = 0;
    std::int64_t reads_enqueued = 0, reads_ended = 0;
  };
  /// What a task expects of an array, by the order of enqueuing.
  struct Expected {
    std::int32_t array = 0;
    bool writes = false;
    std::int64_t writes_before = 0, reads_before = 0;
  };
  struct Job {
    exec::TaskId id;
    std::int32_t variant = 0;
    std::vector<Expected> memory;
    std::optional<exec::TaskId> collective_before;
  };
  /// What stands in a stream: a task, a point that others wait for, or a wait for one.
  struct Item {
    Kind kind = Kind::enqueue;
    std::size_t number = 0;  // of its job or point
  };
  struct Queue {
    std::deque<Item> items;
    bool is_busy = false;
  };
  struct Step {
    std::int32_t variant = 0;
    std::vector<bool> ended;
    std::size_t computed = 0;  // so many tasks of the compute lane, from its first on, have ended
  };
  struct Rank {
    Rank(const StreamJob& job, std::size_t r)
        : calls(&job.calls[r]),
          program(job.programs[r].get()),
          streams(program->lanes.count()),
          memory(program->payloads.count()) {
      for (const doc::TaskGraph& graph : job.plan->variants) {
        const doc::VariantIndex index(*job.plan, graph, static_cast<std::int32_t>(r));
        lanes.push_back(index.lanes[to_index(doc::Resource::compute)]);
      }
    }
    bool is_over() const {
      return next == calls->size() &&
             std::all_of(streams.begin(), streams.end(),
                         [](const Queue& q) { return q.items.empty() && !q.is_busy; });
    }

    const std::vector<StreamCall>* calls;
    const exec::StreamProgram* program;
    std::vector<std::vector<std::uint32_t>> lanes;  // by variant: tasks of the compute lane
    std::size_t next = 0;                           // of the host
    std::vector<Queue> streams;
    std::vector<Memory> memory;
    std::deque<Job> jobs;
    std::deque<Point> points;
    std::map<exec::EventId, std::size_t> recorded;  // the point that an event means now
    std::map<exec::EventId, std::size_t> marks;
    std::vector<double> called_at;      // by call
    std::vector<double> clock_read_at;  // by call that reads the host's clock
    std::map<std::int64_t, Step> steps;
    std::optional<exec::TaskId> last_collective;  // of those enqueued
    std::vector<exec::TaskId> being_read;         // by the host, which goes on when it knows
  };
  /// Who has come to a collective.
  struct Member {
    int rank = 0;
    exec::StreamId stream = -1;
    const Job* job = nullptr;
  };
  struct Event {
    double at = 0;
    std::uint64_t number = 0;
    std::function<void()> act;
    bool operator>(const Event& o) const { return std::tie(at, number) > std::tie(o.at, o.number); }
  };

  Rank& rank(int r) { return ranks_[to_index(r)]; }
  const doc::TaskGraph& graph(std::int32_t variant) const {
    return plan_.variants[to_index(variant)];
  }
  void schedule(double after, std::function<void()> act) {
    queue_.push({now_ + after, number_++, std::move(act)});
  }
  void fail(int r, const std::string& what) {
    if (error_.empty()) error_ = fmt::format("rank {}: {}", r, what);
  }
  std::string title(const Job& job) const {
    const doc::TaskGraph& g = graph(job.variant);
    return fmt::format("step {} ({}) task {}, {}", job.id.step, g.name, job.id.task,
                       name_of(g.tasks[job.id.task].kind));
  }
  /// Mostly short, now and then ten times as long.
  double delay(std::uint64_t key) const {
    const double unit = random_unit(seed_, key);
    return unit * (random_below(seed_, ~key, 8) == 0 ? 10 : 1);
  }

  // ---- the host ----

  void go_on(int r) {
    Rank& mine = rank(r);
    while (error_.empty() && mine.next < mine.calls->size()) {
      const std::size_t at = mine.next++;
      mine.called_at.push_back(now_);
      if (tampering_.rank == r && tampering_.left_out == at) continue;
      const StreamCall& call = (*mine.calls)[at];
      if (call.kind == Kind::host_clock) {
        mine.clock_read_at.push_back(now_);
        continue;
      }
      if (call.kind == Kind::host_wait || call.kind == Kind::mark_wait) {
        const auto& known = call.kind == Kind::host_wait ? mine.recorded : mine.marks;
        Point& point = mine.points[known.at(call.event)];
        if (point.is_over) continue;
        point.waiting.push_back([this, r] { go_on(r); });
        return;
      }
      if (call.kind == Kind::enqueue && !may_enqueue(r, call)) return;
      put(r, call);
      // A host that is far ahead, or just about as fast.
      if (has_enqueued_task(*mine.calls, at) && random_below(seed_, number_, 4) == 0) {
        schedule(delay(number_), [this, r] { go_on(r); });
        return;
      }
    }
    if (mine.next == mine.calls->size()) static_cast<void>(knows_what_it_read(r));
  }

  /// A task, and the mark after it, which comes at once: else the task would seem to last until
  /// then.
  static bool has_enqueued_task(const std::vector<StreamCall>& calls, std::size_t at) {
    if (calls[at].kind == Kind::mark) return at > 0 && calls[at - 1].kind == Kind::enqueue;
    const bool is_marked = at + 1 < calls.size() && calls[at + 1].kind == Kind::mark;
    return calls[at].kind == Kind::enqueue && !is_marked;
  }

  /// The host does not go on before it has the values that it reads.
  bool knows_what_it_read(int r) {
    for (const exec::TaskId& id : std::exchange(rank(r).being_read, {}))
      if (!has_ended(r, id)) return fail(r, "the host reads what is not there yet"), false;
    return true;
  }

  /// Whether the host knows what it has to.
  bool may_enqueue(int r, const StreamCall& call) {
    if (!knows_what_it_read(r)) return false;
    const doc::TaskGraph& g = graph(call.variant);
    const doc::Task& task = g.tasks[call.id.task];
    const exec::HostRead read = exec::host_read_of(plan_, g, task);
    if (read == exec::HostRead::result) rank(r).being_read.push_back(call.id);
    if (read != exec::HostRead::counts) return true;
    const std::int32_t counts = exec::counts_of(g, task.first);
    for (const std::uint32_t p : g.predecessors(call.id.task))
      if (g.tasks[p].first == counts && is_communication(g.tasks[p].kind) &&
          !has_ended(r, {call.id.step, p}))
        return fail(r, "the host reads counts that are not there yet"), false;
    return true;
  }

  void put(int r, const StreamCall& call) {
    Rank& mine = rank(r);
    Queue& stream = mine.streams[to_index(call.stream)];
    if (call.kind == Kind::enqueue) {
      stream.items.push_back({call.kind, mine.jobs.size()});
      mine.jobs.push_back({call.id, call.variant, expected(mine, call), {}});
      if (is_communication(graph(call.variant).tasks[call.id.task].kind))
        mine.jobs.back().collective_before = std::exchange(mine.last_collective, call.id);
      Step& step = mine.steps[call.id.step];
      step.variant = call.variant;
      step.ended.resize(graph(call.variant).tasks.size(), false);
    } else if (call.kind == Kind::record || call.kind == Kind::mark) {
      (call.kind == Kind::record ? mine.recorded : mine.marks)[call.event] = mine.points.size();
      stream.items.push_back({Kind::record, mine.points.size()});
      mine.points.emplace_back();
    } else {
      stream.items.push_back({call.kind, mine.recorded.at(call.event)});
    }
    work_off(r, call.stream);
  }

  static std::vector<Expected> expected(Rank& mine, const StreamCall& call) {
    std::vector<Expected> all;
    for (const exec::PayloadUse& use : mine.program->payloads.of(call.variant, call.id.task)) {
      Memory& memory = mine.memory[to_index(use.array)];
      all.push_back({use.array, use.writes, memory.writes_enqueued, memory.reads_enqueued});
      ++(use.writes ? memory.writes_enqueued : memory.reads_enqueued);
    }
    return all;
  }

  // ---- a stream ----

  void work_off(int r, exec::StreamId s) {
    Rank& mine = rank(r);
    Queue& stream = mine.streams[to_index(s)];
    while (error_.empty() && !stream.is_busy && !stream.items.empty()) {
      const Item item = stream.items.front();
      if (item.kind == Kind::wait && !mine.points[item.number].is_over) {
        stream.is_busy = true;
        mine.points[item.number].waiting.push_back([this, r, s] { free(r, s); });
        return;
      }
      stream.items.pop_front();
      if (item.kind == Kind::record) pass(r, item.number);
      if (item.kind == Kind::enqueue) begin(r, s, mine.jobs[item.number]);
    }
  }
  void free(int r, exec::StreamId s) {
    rank(r).streams[to_index(s)].is_busy = false;
    work_off(r, s);
  }
  void pass(int r, std::size_t point) {
    Point& here = rank(r).points[point];
    here.is_over = true;
    here.at = now_;
    for (auto& act : std::exchange(here.waiting, {})) schedule(0, std::move(act));
  }

  void begin(int r, exec::StreamId s, const Job& job) {
    rank(r).streams[to_index(s)].is_busy = true;
    lasted_[{r, job.id.step, job.id.task}].begin = now_;
    const doc::Task& task = graph(job.variant).tasks[job.id.task];
    if (is_communication(task.kind)) return meet(r, s, job);
    check(r, job);
    schedule(duration(r, job.id), [this, r, s, &job] { end(r, s, job); });
  }
  double duration(int r, exec::TaskId id) const {
    constexpr double kLongerThanAll = 1e9;
    if (tampering_.rank == r && tampering_.slow == id) return kLongerThanAll;
    return delay(random_key(static_cast<std::uint64_t>(r),
                            (static_cast<std::uint64_t>(id.step) << 32) + id.task));
  }
  void end(int r, exec::StreamId s, const Job& job) {
    Rank& mine = rank(r);
    ++tasks_;
    lasted_[{r, job.id.step, job.id.task}].end = now_;
    Step& step = mine.steps.at(job.id.step);
    step.ended[job.id.task] = true;
    const auto& lane = mine.lanes[to_index(step.variant)];
    while (step.computed < lane.size() && step.ended[lane[step.computed]]) ++step.computed;
    for (const Expected& e : job.memory) {
      Memory& memory = mine.memory[to_index(e.array)];
      ++(e.writes ? memory.writes_ended : memory.reads_ended);
    }
    free(r, s);
  }

  /// A collective begins when the streams of all ranks of its part have come to it. Each stream has
  /// come to one; if they are not the same, it would hang.
  void meet(int r, exec::StreamId s, const Job& job) {
    const doc::Task& task = graph(job.variant).tasks[job.id.task];
    const doc::Group& group = plan_.group_of(task);
    const std::int32_t part = group.part_of(r);
    check(r, job);
    if (!error_.empty()) return;
    std::vector<Member>& here = meetings_[{task.group, part}];
    here.push_back({r, s, &job});
    if (const exec::TaskId other = here.front().job->id; !(other == job.id))
      return fail(r, fmt::format("{} meets step {} task {}", title(job), other.step, other.task));
    if (static_cast<std::int32_t>(here.size()) < group.size_of_part(part, plan_.ranks)) return;
    double longest = 0;
    for (const Member& member : here) longest = std::max(longest, duration(member.rank, job.id));
    for (const Member& member : std::exchange(here, {}))
      schedule(longest, [this, member] { end(member.rank, member.stream, *member.job); });
  }

  // ---- what has to be so when a task begins ----

  bool has_ended(int r, exec::TaskId id) {
    const auto step = rank(r).steps.find(id.step);
    return step != rank(r).steps.end() && step->second.ended[id.task];
  }
  bool has(int r, const doc::Task& task) const { return plan_.group_of(task).holds(r); }
  /// Of the compute lane all that comes before it there is over, too, except for that lane's own
  /// tasks, which may come before others that the Plan has first.
  bool is_over(int r, const Job& job, exec::TaskId before) {
    if (!has_ended(r, before)) return false;
    const auto computes = [](const doc::Task& t) { return t.resource == doc::Resource::compute; };
    const Step& step = rank(r).steps.at(before.step);
    const auto& lane = rank(r).lanes[to_index(step.variant)];
    return computes(graph(job.variant).tasks[job.id.task]) ||
           !computes(graph(step.variant).tasks[before.task]) || step.computed == lane.size() ||
           lane[step.computed] > before.task;
  }

  void check(int r, const Job& job) {
    const doc::TaskGraph& g = graph(job.variant);
    for (const std::uint32_t p : g.predecessors(job.id.task))
      if (has(r, g.tasks[p]) && !is_over(r, job, {job.id.step, p}))
        return fail(r, fmt::format("{} begins before task {} has ended", title(job), p));
    check_step_before(r, job);
    if (job.collective_before && !has_ended(r, *job.collective_before))
      fail(r, fmt::format("{} begins before the collective ahead of it has ended", title(job)));
    for (const Expected& e : job.memory) check_memory(r, job, e);
  }

  void check_step_before(int r, const Job& job) {
    const auto before = rank(r).steps.find(job.id.step - 1);
    if (before == rank(r).steps.end()) return;
    const doc::TaskGraph& g = graph(before->second.variant);
    for (const doc::NextStepEdge& e : g.next_step)
      if (e.to == job.id.task && e.variant == job.variant && has(r, g.tasks[e.from]) &&
          !is_over(r, job, {before->first, e.from}))
        fail(r, fmt::format("{} begins before task {} of the step before has ended", title(job),
                            e.from));
  }

  void check_memory(int r, const Job& job, const Expected& e) {
    Memory& memory = rank(r).memory[to_index(e.array)];
    if (memory.writes_ended != e.writes_before || memory.writes_begun != e.writes_before)
      return fail(r, fmt::format("{} finds array {} as it was or will be", title(job), e.array));
    if (!e.writes) return;
    if (memory.reads_ended < e.reads_before)
      return fail(r, fmt::format("{} writes array {}, which is still read", title(job), e.array));
    ++memory.writes_begun;
  }

  const StreamJob& job_;
  const doc::Plan& plan_;
  std::uint64_t seed_;
  Tampering tampering_;
  std::deque<Rank> ranks_;
  std::map<std::tuple<int, std::int64_t, std::uint32_t>, Lasted> lasted_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Member>> meetings_;  // by group, part
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::uint64_t number_ = 0;
  double now_ = 0;
  std::int64_t tasks_ = 0;
  std::string error_;
};

}  // namespace linerate::support
