// The exact program. f[j] is when the first j factors are through. It is the least over i < j of
// the end of the group from i + 1 to j that follows prefix i. A group waits for its last member,
// for the channel, and for the gradients that are ready before it. Each prefix offers all groups
// that begin after it, so a prefix is final when its turn comes.
//
// An example: three factors of one kind get ready at 1, 2 and 6 ms. A message takes 2 ms, and 1 ms
// more for each factor. Alone each takes 3 ms: f[1] = 4 and f[2] = min(4 + 3, 2 + 4) = 6. Then f[3]
// = min(6 + 3, 6 + 4, 6 + 5) = 9: the first two together, the third one by itself.
#include "linerate/plan/kfac/factor_fusion.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

/// The channel after some groups: when it is free, and how many of the gradients were sent.
struct Queue {
  const FactorFusionProblem& problem;
  double free_s = 0;
  std::size_t others = 0;

  /// Gradients that are ready by then go first, since they were submitted before.
  void send_others_until(double at_s) {
    for (; others < problem.others.size() && problem.others[others].ready_s <= at_s; ++others) {
      const Transfer& other = problem.others[others];
      free_s = problem.channel.end_of(std::max(free_s, other.ready_s), other.seconds);
    }
  }
  double end_of(double ready_s, std::int64_t elements, std::int64_t factors) const {
    return problem.channel.end_of(std::max(free_s, ready_s), problem.seconds_of(elements, factors));
  }
};

/// Ready times that ascend: a group is not sent before the groups that it follows are ready.
std::vector<double> ready_prefixes(const FactorFusionProblem& problem) {
  std::vector<double> ready = problem.ready_s;
  for (std::size_t j = 1; j < ready.size(); ++j) ready[j] = std::max(ready[j], ready[j - 1]);
  return ready;
}

bool begins_kind(const FactorFusionProblem& problem, std::size_t l) {
  return l == 0 || (!problem.kind.empty() && problem.kind[l] != problem.kind[l - 1]);
}

// Three rules for sending what ranks have inverted, and the best of them. An example: a message
// takes 2 ms, whatever is in it. Rank 0 is done with inverses at 1, 2 and 2.5 ms, and rank 1 at 4
// ms.
// - send_each: messages from 1, 3, 5 and 7 ms on. The last one ends at 9 ms.
// - send_what_is_done: the first one from 1 to 3 ms, the next two together from 3 to 5 ms, and rank
//   1's from 5 to 7 ms.
// - send_each_root: rank 0's three from 2.5 to 4.5 ms, and rank 1's from 4.5 to 6.5 ms. Here the
//   last rule ends first. If messages grow with what is in them, the other rules may.

/// All of them by `key`, ties by index.
template <class Key>
std::vector<std::int32_t> ascending(const BroadcastProblem& problem, Key key) {
  std::vector<std::int32_t> order(problem.done_s.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, key);
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
struct Sending {
  const BroadcastProblem& problem;
  double free_s = problem.free_s;

  /// Sends members of one root; returns when they are through.
  template <typename Members>
  double send(const Members& members) {
    double done_s = 0;
    std::int64_t elements = 0, count = 0;
    for (const std::int32_t i : members) {
      done_s = std::max(done_s, problem.done_s[to_index(i)]);
      elements += problem.elements[to_index(i)], ++count;
    }
    return free_s = problem.channel.end_of(std::max(free_s, done_s),
                                           problem.seconds_of(elements, count));
  }
};

template <typename Members>
void add_message(const Members& members, Broadcasts& out) {
  out.order.insert(out.order.end(), members.begin(), members.end());
  out.ends.push_back(static_cast<std::int32_t>(out.order.size()));
}

}  // namespace

double finish_s(const FactorFusionProblem& problem, const FactorGroups& groups) {
  const std::vector<double> ready = ready_prefixes(problem);
  Queue queue{problem};
  std::int32_t begin = 0;
  for (const std::int32_t end : groups) {
    std::int64_t elements = 0;
    for (std::int32_t l = begin; l < end; ++l) elements += problem.elements[to_index(l)];
    const double at_s = ready[to_index(end) - 1];
    queue.send_others_until(at_s);
    queue.free_s = queue.end_of(at_s, elements, end - begin);
    begin = end;
  }
  return queue.free_s;
}

FactorGroups fuse_optimally(const FactorFusionProblem& problem) {
  // How a prefix is best sent: its end, its number of groups, and where the last group begins.
  // `others` says how many gradients went before that end.
  struct Prefix {
    double end_s = std::numeric_limits<double>::infinity();
    std::int32_t groups = 0;
    std::size_t from = 0, others = 0;
  };
  const std::vector<double> ready = ready_prefixes(problem);
  std::vector<Prefix> best(ready.size() + 1);
  best[0].end_s = 0;
  // Offers the groups that begin after prefix i, each one factor longer than the one before. A
  // group ends where another kind begins. Prefixes up to i are final.
  for (std::size_t i = 0; i < ready.size(); ++i) {
    Queue queue{problem, best[i].end_s, best[i].others};
    const std::int32_t groups = best[i].groups + 1;
    std::int64_t elements = 0;
    for (std::size_t j = i; j < ready.size() && (j == i || !begins_kind(problem, j)); ++j) {
      elements += problem.elements[j];
      queue.send_others_until(ready[j]);
      const double end_s = queue.end_of(ready[j], elements, static_cast<std::int64_t>(j - i + 1));
      Prefix& prefix = best[j + 1];
      if (end_s < prefix.end_s || (end_s == prefix.end_s && groups < prefix.groups))
        prefix = {end_s, groups, i, queue.others};
    }
  }
  FactorGroups ends;
  for (std::size_t j = ready.size(); j > 0; j = best[j].from)
    ends.push_back(static_cast<std::int32_t>(j));
  std::ranges::reverse(ends);
  return ends;
}

// The authors' rule. `start_s` is when the open group's transfer would start. An example with a
// start-up of 2 ms: factors get ready at 1, 2 and 6 ms. The second one is ready before 1 + 2 ms, so
// it joins, and the start moves to 2 ms. The third one is not ready before 2 + 2 ms, so the group
// ends.
FactorGroups fuse_greedily(const FactorFusionProblem& problem, double start_up_s) {
  const std::vector<double> ready = ready_prefixes(problem);
  FactorGroups groups;
  double start_s = 0;  // of the group that l ends
  std::int64_t elements = 0, factors = 0;
  for (std::size_t l = 0; l < ready.size(); ++l) {
    if (begins_kind(problem, l)) start_s = ready[l], elements = factors = 0;
    elements += problem.elements[l], ++factors;
    const bool last = l + 1 == ready.size() || begins_kind(problem, l + 1);
    // This is MG-WFBP's rule in short. The next factor is ready before this transfer would end, and
    // either before it would start or so soon after that waiting costs less than a start-up.
    if (!last && ready[l + 1] < start_s + start_up_s) {
      start_s = std::max(start_s, ready[l + 1]);
      continue;
    }
    groups.push_back(static_cast<std::int32_t>(l) + 1);
    if (last) continue;
    start_s = std::max(start_s + problem.seconds_of(elements, factors), ready[l + 1]);
    elements = factors = 0;
  }
  return groups;
}

FactorGroups fuse_nothing(const FactorFusionProblem& problem) {
  FactorGroups groups(problem.ready_s.size());
  std::iota(groups.begin(), groups.end(), 1);
  return groups;
}

FactorGroups fuse_each_kind(const FactorFusionProblem& problem) {
  FactorGroups groups;
  for (std::size_t l = 1; l <= problem.ready_s.size(); ++l)
    if (l == problem.ready_s.size() || begins_kind(problem, l))
      groups.push_back(static_cast<std::int32_t>(l));
  return groups;
}

std::vector<std::span<const std::int32_t>> messages_of(std::span<const std::int32_t> order,
                                                       std::span<const std::int32_t> ends) {
  std::vector<std::span<const std::int32_t>> messages;
  std::int32_t begin = 0;
  for (const std::int32_t end : ends) {
    messages.push_back(order.subspan(to_index(begin), to_index(end - begin)));
    begin = end;
  }
  return messages;
}

Broadcasts send_each(const BroadcastProblem& problem) {
  const auto done_s = [&](std::int32_t i) { return problem.done_s[to_index(i)]; };
  Broadcasts all{ascending(problem, done_s), std::vector<std::int32_t>(problem.done_s.size())};
  std::iota(all.ends.begin(), all.ends.end(), 1);
  return all;
}

Broadcasts send_what_is_done(const BroadcastProblem& problem) {
  Broadcasts all;
  Sending channel{problem};
  const auto head_s = [&](const RootQueue& queue) {
    return problem.done_s[to_index(queue.front())];
  };
  RootQueues roots(problem);
  for (std::vector<RootQueue>& queues = roots.all(); !queues.empty();) {
    const auto next = std::ranges::min_element(queues, {}, head_s);
    const double now_s = std::max(channel.free_s, head_s(*next));
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
  std::ranges::stable_sort(roots.all(), {}, [&](const RootQueue& queue) {
    return problem.done_s[to_index(queue.back())];
  });
  Broadcasts all;
  for (const RootQueue& message : roots.all()) add_message(message, all);
  return all;
}

std::vector<double> ends_s(const BroadcastProblem& problem, const Broadcasts& broadcasts) {
  std::vector<double> ends;
  Sending channel{problem};
  for (const auto message : messages_of(broadcasts.order, broadcasts.ends))
    ends.push_back(channel.send(message));
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
