#include "linerate/plan/kfac/broadcast_fusion.hpp"
#include "linerate/core/index.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

namespace linerate::plan {
namespace {

std::vector<std::int32_t> by_end(const BroadcastProblem& problem) {
  std::vector<std::int32_t> order(problem.done_s.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return problem.done_s[to_index(a)] < problem.done_s[to_index(b)];
  });
  return order;
}

/// What each root has to send, in the order in which it is done.
using Queues = std::map<std::int32_t, std::deque<std::int32_t>>;

Queues queues_of(const BroadcastProblem& problem) {
  Queues queues;
  for (const std::int32_t i : by_end(problem)) queues[problem.root[to_index(i)]].push_back(i);
  return queues;
}

/// The channel at work.
class Sending {
 public:
  explicit Sending(const BroadcastProblem& problem) : problem_(problem), free_s_(problem.free_s) {}

  /// Sends members of one root; returns when they are through.
  template <typename Members>
  double send(const Members& members) {
    double done_s = 0;
    std::int64_t elements = 0, count = 0;
    for (const std::int32_t i : members) {
      done_s = std::max(done_s, problem_.done_s[to_index(i)]);
      elements += problem_.elements[to_index(i)], ++count;
    }
    return free_s_ = problem_.channel.end_of(std::max(free_s_, done_s),
                                             problem_.seconds_of(elements, count));
  }
  double free_s() const { return free_s_; }

 private:
  const BroadcastProblem& problem_;
  double free_s_;
};

template <typename Members>
void add_message(const Members& members, Broadcasts& out) {
  out.order.insert(out.order.end(), members.begin(), members.end());
  out.ends.push_back(static_cast<std::int32_t>(out.order.size()));
}

}  // namespace

Broadcasts send_each(const BroadcastProblem& problem) {
  Broadcasts all{by_end(problem), std::vector<std::int32_t>(problem.done_s.size())};
  std::iota(all.ends.begin(), all.ends.end(), 1);
  return all;
}

Broadcasts send_what_is_done(const BroadcastProblem& problem) {
  Broadcasts all;
  Sending channel(problem);
  const auto head_s = [&](const auto& queue) {
    return problem.done_s[to_index(queue.second.front())];
  };
  for (Queues queues = queues_of(problem); !queues.empty();) {
    const auto next =
        std::min_element(queues.begin(), queues.end(),
                         [&](const auto& a, const auto& b) { return head_s(a) < head_s(b); });
    const double now_s = std::max(channel.free_s(), head_s(*next));
    std::vector<std::int32_t> message;
    for (auto& queue = next->second; !queue.empty() && head_s(*next) <= now_s; queue.pop_front())
      message.push_back(queue.front());
    channel.send(message);
    add_message(message, all);
    if (next->second.empty()) queues.erase(next);
  }
  return all;
}

Broadcasts send_each_root(const BroadcastProblem& problem) {
  const Queues queues = queues_of(problem);
  std::vector<const std::deque<std::int32_t>*> messages;
  for (const auto& [root, queue] : queues) messages.push_back(&queue);
  std::stable_sort(messages.begin(), messages.end(), [&](const auto* a, const auto* b) {
    return problem.done_s[to_index(a->back())] < problem.done_s[to_index(b->back())];
  });
  Broadcasts all;
  for (const auto* message : messages) add_message(*message, all);
  return all;
}

std::vector<double> ends_s(const BroadcastProblem& problem, const Broadcasts& broadcasts) {
  std::vector<double> ends;
  Sending channel(problem);
  auto begin = broadcasts.order.begin();
  for (const std::int32_t end : broadcasts.ends) {
    const auto behind = broadcasts.order.begin() + end;
    ends.push_back(channel.send(std::span(begin, behind)));
    begin = behind;
  }
  return ends;
}

Broadcasts fuse_broadcasts(const BroadcastProblem& problem) {
  Broadcasts best = send_each(problem);
  if (best.order.empty()) return best;
  for (const auto rule : {send_what_is_done, send_each_root}) {
    Broadcasts other = rule(problem);
    if (is_sooner(ends_s(problem, other).back(), ends_s(problem, best).back()))
      best = std::move(other);
  }
  return best;
}

}  // namespace linerate::plan
