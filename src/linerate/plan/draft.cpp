// Lanes are linked lists over one array of nodes, and edges are linked lists over one array of
// edges. So a handle stays valid while tasks are put before and after it. At last linearise()
// writes the tasks as a TaskGraph, whose order every rank keeps in each lane.
#include "linerate/plan/draft.hpp"

#include "linerate/core/error.hpp"

namespace linerate::plan {

Handle Draft::insert_after(Handle neighbour, const doc::Task& task) {
  const Handle next = nodes_[index(neighbour)].next;
  return next == kNoTask ? append(task) : insert_before(next, task);
}

// The new task takes the place of its neighbour, in the lane that both use.
Handle Draft::insert_before(Handle neighbour, const doc::Task& task) {
  const Handle h = make(task);
  Node& behind = nodes_[index(neighbour)];
  nodes_[index(h)].next = neighbour;
  nodes_[index(h)].previous = behind.previous;
  (behind.previous == kNoTask ? lane_of(task).head : nodes_[index(behind.previous)].next) = h;
  behind.previous = h;
  return h;
}

void Draft::remove(Handle task) {
  const Node& node = nodes_[index(task)];
  Lane& lane = lane_of(node.task);
  (node.previous == kNoTask ? lane.head : nodes_[index(node.previous)].next) = node.next;
  (node.next == kNoTask ? lane.tail : nodes_[index(node.next)].previous) = node.previous;
  ++removed_;
}

void Draft::wait(Handle task, Handle before) {
  const auto edge = static_cast<std::uint32_t>(edges_.size());
  edges_.push_back({before, kNone});
  nodes_[index(before)].awaited = true;
  Node& node = nodes_[index(task)];
  (node.last_edge == kNone ? node.first_edge : edges_[node.last_edge].next) = edge;
  node.last_edge = edge;
}

void Draft::wait_instead(Handle task, Handle then, Handle now) {
  for (std::uint32_t e = nodes_[index(task)].first_edge; e != kNone; e = edges_[e].next)
    if (edges_[e].before == then) edges_[e].before = now;
  nodes_[index(now)].awaited = true;
}

// Whether everything that the task waits for is put out already.
bool Draft::may_follow(const Node& node) const {
  for (std::uint32_t e = node.first_edge; e != kNone; e = edges_[e].next)
    if (position_[index(edges_[e].before)] == kNone) return false;
  return true;
}

/// Puts tasks out until the lane has to wait. With `stop_at_news` it also stops after a task that
/// others wait for. Returns whether it put out any. `head` moves on.
bool Draft::run_lane(Handle& head, bool stop_at_news, doc::TaskGraph& out) {
  const std::uint32_t before = put_out_;
  const Node* const nodes = nodes_.data();
  doc::Task* const tasks = out.tasks.data();
  std::uint32_t* const pred_begin = out.pred_begin.data();
  std::uint32_t* const position = position_.data();
  std::uint32_t count = before, preds = pred_begin[before];
  Handle at = head;
  while (at != kNoTask) {
    const Node& node = nodes[index(at)];
    if (node.first_edge != kNone) {  // most computations follow nothing but their lane
      if (!may_follow(node)) break;
      for (std::uint32_t e = node.first_edge; e != kNone; e = edges_[e].next)
        out.preds.push_back(position[index(edges_[e].before)]);
      preds = static_cast<std::uint32_t>(out.preds.size());
    }
    tasks[count] = node.task;
    position[index(at)] = count;
    pred_begin[++count] = preds;
    at = node.next;
    if (stop_at_news && node.awaited) break;
  }
  head = at;
  put_out_ = count;
  return count > before;
}

// The order is found as follows. All lanes but the computation go on as far as they can. Then the
// computation goes on up to the first task that others wait for. This repeats until all tasks are
// out. So a collective stands right after the computation that it waits for. A task that waits for
// a transfer comes before the next computation if both may run.
//
// An example: the computation is b1, b2, b3. The network has x1, which waits for b1, and x3, which
// waits for b3. The order is b1, x1, b2, b3, x3: after b1 the computation stops, as x1 waits for
// it. Nothing waits for b2, so b3 follows at once. Each task and each edge is looked at once, but
// for lanes that wait.
void Draft::linearise(doc::TaskGraph& out) {
  constexpr auto kCompute = to_index(doc::Resource::compute);
  const std::size_t all = nodes_.size() - removed_;
  position_.assign(nodes_.size(), kNone);
  put_out_ = 0;
  out.tasks.resize(all);
  out.preds.clear();
  out.pred_begin.resize(all + 1);
  out.pred_begin.front() = 0;
  std::array<Handle, doc::kResourceNames.size()> head;
  for (std::size_t r = 0; r < head.size(); ++r) head[r] = lanes_[r].head;
  while (put_out_ < all) {
    bool moved = false;
    for (std::size_t r = 0; r < head.size(); ++r)
      if (r != kCompute && head[r] != kNoTask) moved |= run_lane(head[r], false, out);
    // What follows a transfer may free another lane before the next computation.
    if (moved) continue;
    LINERATE_CHECK(run_lane(head[kCompute], true, out), "tasks wait for each other in a circle");
  }
}

}  // namespace linerate::plan
