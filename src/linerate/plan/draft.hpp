// A step under construction: tasks that keep their handle while passes put others between them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::plan {

/// A task of a Draft, whatever is inserted around it.
enum class Handle : std::uint32_t {};
inline constexpr Handle kNoTask{~0u};

/// A step under construction. Every task stands in the lane of its resource, in the order in which
/// a rank runs that lane. Edges join tasks of any lanes.
class Draft {
 public:
  /// Appends to its lane.
  Handle append(const doc::Task& task) {
    const Handle h = make(task);
    Lane& lane = lane_of(task);
    nodes_.back().previous = lane.tail;
    (lane.tail == kNoTask ? lane.head : nodes_[index(lane.tail)].next) = h;
    return lane.tail = h;
  }
  /// Right after, or before, a task of the same lane.
  Handle insert_after(Handle neighbour, const doc::Task& task);
  Handle insert_before(Handle neighbour, const doc::Task& task);
  /// Takes a task out of its lane. No edge may begin or end at it.
  void remove(Handle task);
  /// `task` waits for `before`.
  void wait(Handle task, Handle before);
  /// `task` waits for `now` instead of `then`.
  void wait_instead(Handle task, Handle then, Handle now);

  doc::Task& operator[](Handle h) { return nodes_[index(h)].task; }
  const doc::Task& operator[](Handle h) const { return nodes_[index(h)].task; }
  /// The last task of a lane, kNoTask if it is empty.
  Handle last(doc::Resource lane) const { return lanes_[to_index(lane)].tail; }
  /// The first one, and the one after a task of the same lane; kNoTask if there is none.
  Handle first(doc::Resource lane) const { return lanes_[to_index(lane)].head; }
  Handle behind(Handle task) const { return nodes_[index(task)].next; }

  /// Writes tasks and edges to `out` in topological order, in place of those that it has. Lanes
  /// keep their order. A task that waits for another one follows it before the next computation.
  /// Throws InternalError if lanes and edges contradict each other.
  void linearise(doc::TaskGraph& out);
  /// The position that linearise() gave a task.
  std::uint32_t position(Handle h) const { return position_[index(h)]; }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  struct Node {
    explicit Node(const doc::Task& t) : task(t) {}
    doc::Task task;
    Handle previous = kNoTask, next = kNoTask;  // in its lane
    std::uint32_t first_edge = kNone, last_edge = kNone;
    bool awaited = false;  // an edge begins here
  };
  struct Edge {
    Handle before;
    std::uint32_t next;
  };
  struct Lane {
    Handle head = kNoTask, tail = kNoTask;
  };

  static std::size_t index(Handle h) { return to_index(h); }
  Lane& lane_of(const doc::Task& task) { return lanes_[to_index(task.resource)]; }
  Handle make(const doc::Task& task) {
    nodes_.emplace_back(task);
    return static_cast<Handle>(nodes_.size() - 1);
  }
  bool may_follow(const Node& node) const;
  bool run_lane(Handle& head, bool stop_at_news, doc::TaskGraph& out);

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<Lane, doc::kResourceNames.size()> lanes_;
  std::vector<std::uint32_t> position_;
  std::size_t removed_ = 0;
  std::uint32_t put_out_ = 0;  // tasks, by linearise()
};

}  // namespace linerate::plan
