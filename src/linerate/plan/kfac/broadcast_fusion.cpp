// Three rules for sending what ranks have inverted, and the best of them. An example: a message
// takes 2 ms, whatever is in it. Rank 0 is done with inverses at 1, 2 and 2.5 ms, and rank 1 at 4
// ms.
// - send_each: messages from 1, 3, 5 and 7 ms on. The last one ends at 9 ms.
// - send_what_is_done: the first one from 1 to 3 ms, the next two together from 3 to 5 ms, and rank
//   1's from 5 to 7 ms.
// - send_each_root: rank 0's three from 2.5 to 4.5 ms, and rank 1's from 4.5 to 6.5 ms. Here the
//   last rule ends first. If messages grow with what is in them, the other rules may.
#include "linerate/plan/kfac/broadcast_fusion.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

/// All of them by `key`, ties by index.
template <class Key>
std::vector<std::int32_t> ascending(const BroadcastProblem& problem, Key key) {
  std::vector<std::int32_t> order(problem.done_s.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return std::tuple(key(a), a) < std::tuple(key(b), b);
  });
  return order;
}

/// What a root has to send, in the order in which it is done.
using RootQueue = std::span<const std::int32_t>;

/// Roots that have something to send, the lowest first.
class RootQueues {
 public:
  explicit RootQueues(const BroadcastProblem& problem) {
    const auto root = [&](std::int32_t i) { return problem.root[to_index(i)]; };
    order_ = ascending(
        problem, [&](std::int32_t i) { return std::pair(root(i), problem.done_s[to_index(i)]); });
    for (std::size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
      while (end < order_.size() && root(order_[end]) == root(order_[begin])) ++end;
      queues_.push_back(std::span(order_).subspan(begin, end - begin));
    }
  }
  std::vector<RootQueue>& all() { return queues_; }

 private:
  std::vector<std::int32_t> order_;
  std::vector<RootQueue> queues_;
};

/// The channel, which sends one message after the other.
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
  const auto done_s = [&](std::int32_t i) { return problem.done_s[to_index(i)]; };
  Broadcasts all{ascending(problem, done_s), std::vector<std::int32_t>(problem.done_s.size())};
  std::iota(all.ends.begin(), all.ends.end(), 1);
  return all;
}

Broadcasts send_what_is_done(const BroadcastProblem& problem) {
  Broadcasts all;
  Sending channel(problem);
  const auto head_s = [&](const RootQueue& queue) {
    return problem.done_s[to_index(queue.front())];
  };
  RootQueues roots(problem);
  for (std::vector<RootQueue>& queues = roots.all(); !queues.empty();) {
    const auto next = std::min_element(
        queues.begin(), queues.end(),
        [&](const RootQueue& a, const RootQueue& b) { return head_s(a) < head_s(b); });
    const double now_s = std::max(channel.free_s(), head_s(*next));
    std::size_t done = 1;
    while (done < next->size() && problem.done_s[to_index((*next)[done])] <= now_s) ++done;
    channel.send(next->first(done));
    add_message(next->first(done), all);
    *next = next->subspan(done);
    if (next->empty()) queues.erase(next);
  }
  return all;
}

Broadcasts send_each_root(const BroadcastProblem& problem) {
  RootQueues roots(problem);
  std::stable_sort(roots.all().begin(), roots.all().end(),
                   [&](const RootQueue& a, const RootQueue& b) {
                     return problem.done_s[to_index(a.back())] < problem.done_s[to_index(b.back())];
                   });
  Broadcasts all;
  for (const RootQueue& message : roots.all()) add_message(message, all);
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
