// The exact program. f[j] is when the first j factors are through. It is the least over i < j of
// the end of the group from i + 1 to j that follows prefix i. A group waits for its last member,
// for the channel, and for the gradients that are ready before it. extend(i) offers all groups that
// begin after i, so a prefix is final when its turn comes.
//
// An example: three factors of one kind get ready at 1, 2 and 6 ms. A message takes 2 ms, and 1 ms
// more for each factor. Alone each takes 3 ms: f[1] = 4 and f[2] = min(4 + 3, 2 + 4) = 6. Then f[3]
// = min(6 + 3, 6 + 4, 6 + 5) = 9: the first two together, the third one by itself.
#include "linerate/plan/kfac/factor_fusion.hpp"

#include <algorithm>
#include <limits>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

/// The channel after some groups: when it is free, and how many of the gradients were sent.
class Queue {
 public:
  Queue(const FactorFusionProblem& problem, double free_s, std::size_t others)
      : problem_(problem), free_s_(free_s), others_(others) {}

  /// Gradients that are ready by then go first, since they were submitted before.
  void send_others_until(double at_s) {
    for (; others_ < problem_.others.size() && problem_.others[others_].ready_s <= at_s;
         ++others_) {
      const Transfer& other = problem_.others[others_];
      free_s_ = problem_.channel.end_of(std::max(free_s_, other.ready_s), other.seconds);
    }
  }
  double end_of(double ready_s, std::int64_t elements, std::int64_t factors) const {
    return problem_.channel.end_of(std::max(free_s_, ready_s),
                                   problem_.seconds_of(elements, factors));
  }
  std::size_t others() const { return others_; }

 private:
  const FactorFusionProblem& problem_;
  double free_s_;
  std::size_t others_;
};

/// Ready times that ascend: a group is not sent before the groups that it follows are ready.
std::vector<double> ready_prefixes(const FactorFusionProblem& problem) {
  std::vector<double> ready(problem.ready_s.begin(), problem.ready_s.end());
  for (std::size_t j = 1; j < ready.size(); ++j) ready[j] = std::max(ready[j], ready[j - 1]);
  return ready;
}

bool begins_kind(const FactorFusionProblem& problem, std::size_t l) {
  return l == 0 || (!problem.kind.empty() && problem.kind[l] != problem.kind[l - 1]);
}

class FactorSearch {
 public:
  explicit FactorSearch(const FactorFusionProblem& problem)
      : problem_(problem),
        ready_(ready_prefixes(problem)),
        best_(ready_.size() + 1, {std::numeric_limits<double>::infinity(), 0, 0, 0}) {}

  FactorGroups run() {
    best_[0] = {0, 0, 0, 0};
    for (std::size_t i = 0; i < ready_.size(); ++i) extend(i);
    FactorGroups groups;
    for (std::size_t j = ready_.size(); j > 0; j = best_[j].from)
      groups.push_back(static_cast<std::int32_t>(j));
    std::reverse(groups.begin(), groups.end());
    return groups;
  }

 private:
  /// How a prefix is best sent: its end, its number of groups, and where the last group begins.
  /// `others` says how many gradients went before that end.
  struct Prefix {
    double end_s;
    std::int32_t groups;
    std::size_t from, others;
  };

  /// Offers the groups that begin after prefix i, each one factor longer than the one before. A
  /// group ends where another kind begins. Prefixes up to i are final.
  void extend(std::size_t i) {
    Queue queue(problem_, best_[i].end_s, best_[i].others);
    std::int64_t elements = 0;
    for (std::size_t j = i; j < ready_.size() && (j == i || !begins_kind(problem_, j)); ++j) {
      elements += problem_.elements[j];
      queue.send_others_until(ready_[j]);
      const double end_s = queue.end_of(ready_[j], elements, static_cast<std::int64_t>(j - i + 1));
      Prefix& prefix = best_[j + 1];
      const std::int32_t groups = best_[i].groups + 1;
      if (end_s < prefix.end_s || (end_s == prefix.end_s && groups < prefix.groups))
        prefix = {end_s, groups, i, queue.others()};
    }
  }

  const FactorFusionProblem& problem_;
  std::vector<double> ready_;
  std::vector<Prefix> best_;
};

}  // namespace

double finish_s(const FactorFusionProblem& problem, const FactorGroups& groups) {
  const std::vector<double> ready = ready_prefixes(problem);
  double free_s = 0;
  std::size_t others = 0;
  std::int32_t begin = 0;
  for (const std::int32_t end : groups) {
    std::int64_t elements = 0;
    for (std::int32_t l = begin; l < end; ++l) elements += problem.elements[to_index(l)];
    const double at_s = ready[to_index(end) - 1];
    Queue queue(problem, free_s, others);
    queue.send_others_until(at_s);
    free_s = queue.end_of(at_s, elements, end - begin);
    others = queue.others();
    begin = end;
  }
  return free_s;
}

FactorGroups fuse_optimally(const FactorFusionProblem& problem) {
  return FactorSearch(problem).run();
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
  FactorGroups groups;
  for (std::size_t l = 0; l < problem.ready_s.size(); ++l)
    groups.push_back(static_cast<std::int32_t>(l) + 1);
  return groups;
}

FactorGroups fuse_each_kind(const FactorFusionProblem& problem) {
  FactorGroups groups;
  for (std::size_t l = 1; l <= problem.ready_s.size(); ++l)
    if (l == problem.ready_s.size() || begins_kind(problem, l))
      groups.push_back(static_cast<std::int32_t>(l));
  return groups;
}

FactorGroups fuse_everything(const FactorFusionProblem& problem) {
  return {static_cast<std::int32_t>(problem.ready_s.size())};
}

}  // namespace linerate::plan
