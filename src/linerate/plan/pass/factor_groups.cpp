// Chooses the groups in which K-FAC's factors travel. For kfac(spd) factors get ready during
// forward (A) and backward (G), and a group leaves as soon as it is ready. More groups overlap more
// and pay more start-ups. An exact dynamic program finds the groups whose last message ends first
// (factor_fusion.cpp).
//
// That end is not all that counts: inverses begin when their factors arrive, and directions need
// gradients too. So best_for_inverses() places the inverses for several candidates and takes the
// one whose step ends first. It also tries whether gradients had better wait for factors.
#include "linerate/plan/passes.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "linerate/cost/collective_times.hpp"
#include "linerate/plan/exchange/fusion.hpp"
#include "linerate/plan/kfac/factor_fusion.hpp"

namespace linerate::plan {
namespace {

using doc::FactorSide;

/// The start-up of the straight line that the authors' rule assumes as cost. The line goes through
/// the costs of the smallest factor and of all factors together.
double start_up_s(const FactorFusionProblem& problem) {
  const auto& elements = problem.elements;
  const auto least = *std::min_element(elements.begin(), elements.end());
  const auto all = std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
  return line_through(static_cast<double>(least), problem.seconds_of(least, 0),
                      static_cast<double>(all), problem.seconds_of(all, 0))
      .alpha_s;
}

// The factors that travel. A layer of normalisation, for example, has no A.
std::vector<std::int32_t> factors_there(const Curvature& curvature) {
  std::vector<std::int32_t> all;
  for (std::int32_t f = 0; f < curvature.factors(); ++f)
    if (curvature.elements(f) > 0) all.push_back(f);
  return all;
}

/// The buckets from this one on wait for all groups.
void let_buckets_wait(std::size_t from, std::vector<FactorGroup>& groups) {
  for (FactorGroup& group : groups) group.bucket = std::min(group.bucket, from);
}

/// Cuts factors into groups while forward and backward run.
class OverlappedGroups {
 public:
  OverlappedGroups(const PassInput& input, const StepDraft& step, const FactorTraffic& traffic)
      : input_(input),
        step_(step),
        traffic_(traffic),
        curvature_(*input.curvature),
        order_(by_readiness()) {
    for (const std::int32_t f : order_) {
      problem_.ready_s.push_back(traffic.ready_s[to_index(f)]);
      problem_.elements.push_back(curvature_.sent_elements(f));
      problem_.kind.push_back(static_cast<std::int32_t>(doc::side_of_factor(f)));
    }
    problem_.seconds_of = traffic.seconds_of_sums;
    problem_.others = traffic.gradients;
    problem_.channel = traffic.channel;
  }

  std::vector<FactorGroup> groups() const {
    switch (curvature_.kfac.fusion) {
      case FactorFusion::optimal:
        return best();
      case FactorFusion::greedy:
        return cut(fuse_greedily(problem_, start_up_s(problem_)));
      case FactorFusion::none:
        return cut(fuse_nothing(problem_));
      default:
        return cut(fuse_each_kind(problem_));
    }
  }

 private:
  /// A of all layers, then G: they get ready in this order, even if nothing takes any time.
  std::vector<std::int32_t> by_readiness() const {
    std::vector<std::int32_t> order = factors_there(curvature_);
    const auto place = [&](std::int32_t f) {
      const FactorSide side = doc::side_of_factor(f);
      return std::tuple(side, traffic_.ready_s[to_index(f)],
                        side == FactorSide::g ? curvature_.block_of(f).gradients.back() : 0);
    };
    std::ranges::stable_sort(order, {}, place);
    return order;
  }

  // The groups that end at these places of `order_`. A group is ready with its last member, and not
  // before the groups before it. Groups and buckets leave as they get ready, a group after the
  // buckets that are ready when it is.
  std::vector<FactorGroup> cut(const FactorGroups& ends) const {
    std::vector<FactorGroup> groups;
    std::size_t f = 0, bucket = 0;
    double latest_s = 0;
    for (const std::int32_t end : ends) {
      FactorGroup& group = groups.emplace_back();
      for (; f < to_index(end); ++f) {
        group.members.push_back(order_[f]);
        latest_s = std::max(latest_s, problem_.ready_s[f]);
      }
      group.ready_s = latest_s;
      while (bucket < traffic_.gradients.size() && traffic_.gradients[bucket].ready_s <= latest_s)
        ++bucket;
      group.bucket = bucket;
    }
    return groups;
  }

  /// The groups that end first may not let inverses begin first. So the program's groups are
  /// compared with those of the other rules, and with one message of everything as kfac(mpd) sends
  /// it.
  std::vector<FactorGroup> best() const {
    const std::vector<FactorGroups> cuts = {fuse_optimally(problem_),
                                            {static_cast<std::int32_t>(order_.size())},
                                            fuse_each_kind(problem_),
                                            fuse_greedily(problem_, start_up_s(problem_)),
                                            fuse_nothing(problem_)};
    if (input_.update.inverses && input_.ranks > 1) return best_for_inverses(cuts);
    return cut(*std::ranges::min_element(
        cuts, {}, [&](const FactorGroups& groups) { return finish_s(problem_, groups); }));
  }

  struct Candidate {
    std::vector<FactorGroup> groups;
    double end_s = std::numeric_limits<double>::infinity();
  };

  /// Each candidate is a cut into groups and an order with the gradients. For every cut, inverses
  /// are placed for its own arrivals, and all orders are tried with that placement: a placement
  /// costs far more than a trial.
  std::vector<FactorGroup> best_for_inverses(std::vector<FactorGroups> cuts) const {
    FactorFusionProblem before_gradients = problem_;
    before_gradients.others = {};
    if (gradients_can_wait()) cuts.push_back(fuse_optimally(before_gradients));
    Candidate best;
    for (const FactorGroups& ends : cuts) {
      std::vector<FactorGroup> groups = cut(ends);
      try_orders(groups, placed_for(groups), best);
      if (!gradients_can_wait()) continue;
      let_buckets_wait(0, groups);
      try_orders(cut(ends), placed_for(groups), best);
    }
    return best.groups;
  }

  using End = std::function<double(const FactorArrivals&)>;

  End placed_for(const std::vector<FactorGroup>& groups) const {
    return curvature_.inverted_s(input_.cost, arrivals(groups));
  }
  FactorArrivals arrivals(const std::vector<FactorGroup>& groups) const {
    return arrivals_of(input_, traffic_, groups);
  }

  /// Inverses wait for factors alone, directions for gradients too. So it is tried from which
  /// bucket on gradients had better wait for all factors. First none waits, then the last one, then
  /// the last two, and so on.
  void try_orders(std::vector<FactorGroup> groups, const End& inverted_s, Candidate& best) const {
    for (std::size_t from = traffic_.gradients.size() + 1; from-- > 0;) {
      let_buckets_wait(from, groups);
      const double end_s = inverted_s(arrivals(groups));
      if (is_sooner(end_s, best.end_s)) best = {groups, end_s};
      if (!gradients_can_wait()) return;
    }
  }

  /// Whether nothing is done with a received bucket before inverses begin. A decode, for example,
  /// would hold up the inverses after it in the lane.
  bool gradients_can_wait() const {
    return std::ranges::all_of(step_.exchanges,
                               [](const BucketExchange& x) { return x.received == x.send; });
  }

  const PassInput& input_;
  const StepDraft& step_;
  const FactorTraffic& traffic_;
  const Curvature& curvature_;
  std::vector<std::int32_t> order_;
  FactorFusionProblem problem_;  // of those
};

/// One message of all factors, or one each, after backward and after the gradients.
std::vector<FactorGroup> groups_at_the_end(const Curvature& curvature,
                                           const FactorTraffic& traffic) {
  std::vector<FactorGroup> groups;
  for (const std::int32_t f : factors_there(curvature)) {
    const bool each = curvature.kfac.fusion == FactorFusion::none;
    if (each || groups.empty())
      groups.push_back({{}, traffic.backward_end_s, traffic.gradients.size()});
    groups.back().members.push_back(f);
  }
  return groups;
}

}  // namespace

std::vector<FactorGroup> group_factors(const PassInput& input, const StepDraft& step,
                                       const FactorTraffic& traffic) {
  if (factors_overlap(input)) return OverlappedGroups(input, step, traffic).groups();
  return groups_at_the_end(*input.curvature, traffic);
}

// Merges groups of factors with buckets of gradients into one order on the network. An example:
// groups are ready at 2 and 6 ms and buckets at 4 and 9 ms. By readiness the order is group,
// bucket, group, bucket. If the buckets from the second one on wait, it is the same. If all wait,
// both groups come first.

FactorArrivals arrivals_of(const PassInput& input, const FactorTraffic& traffic,
                           const std::vector<FactorGroup>& groups) {
  const Curvature& curvature = *input.curvature;
  FactorArrivals arrivals{
      {}, std::vector<std::int32_t>(to_index(curvature.factors()), -1), {}, traffic.backward_end_s};
  std::vector<std::int32_t> transfer_of;  // by bucket
  const auto send_buckets_before = [&](std::size_t end) {
    while (transfer_of.size() < end) {
      arrivals.transfers.push_back(traffic.gradients[transfer_of.size()]);
      transfer_of.push_back(static_cast<std::int32_t>(arrivals.transfers.size()) - 1);
    }
  };
  for (const FactorGroup& group : groups) {
    send_buckets_before(group.bucket);
    std::int64_t elements = 0;
    for (const std::int32_t f : group.members) {
      elements += curvature.sent_elements(f);
      arrivals.after[to_index(f)] = static_cast<std::int32_t>(arrivals.transfers.size());
    }
    arrivals.transfers.push_back(
        {group.ready_s,
         traffic.seconds_of_sums(elements, static_cast<std::int64_t>(group.members.size()))});
  }
  send_buckets_before(traffic.gradients.size());
  for (const std::size_t bucket : traffic.last_bucket_of_blocks)
    arrivals.gradient_after.push_back(transfer_of[bucket]);
  return arrivals;
}

// When gradients need the network during backward, for fusion of factors: sums of factors travel in
// the gaps that gradients leave. Times come from adding up the compute lane, not from a simulation,
// as the Plan is not whole yet.

FactorTraffic traffic_of(const PassInput& input, const StepDraft& step,
                         std::span<const Handle> computed) {
  FactorTraffic traffic;
  // The compute lane as if nothing in it waited: after each task, the seconds since the step began.
  std::vector<double> end_s;
  double& now_s = traffic.backward_end_s;
  for (Handle h = step.tasks.first(doc::Resource::compute); h != kNoTask;
       h = step.tasks.behind(h)) {
    now_s += step.tasks[h].seconds;
    if (end_s.size() <= to_index(h)) end_s.resize(to_index(h) + 1, -1);
    end_s[to_index(h)] = now_s;
    if (h == step.backward_end) break;
  }
  // A task of another lane, or after backward, counts as the end of backward.
  const auto end_of = [&](Handle h) {
    const auto index = to_index(h);
    return index < end_s.size() && end_s[index] >= 0 ? end_s[index] : traffic.backward_end_s;
  };
  for (const Handle h : computed) traffic.ready_s.push_back(end_of(h));
  traffic.seconds_of_sums =
      seconds_of_messages(input.cost, Collective::all_reduce, input.ranks, input.curvature->dtype);
  // After backward nothing computes next to the network, so messages are not slowed any more.
  const doc::Cluster& cluster = input.cost.cluster();
  traffic.channel = {traffic.backward_end_s,
                     cluster.contention ? cluster.contention->communication_slowdown : 1};
  const double tensor_s = input.ranks > 1 ? cluster.tensor_s : 0;
  // A bucket may be ready before the one before it, and leaves after it. So ready times are made to
  // ascend.
  double latest_s = 0;
  for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
    const doc::Task& send = step.tasks[step.exchanges[b].send];
    latest_s = std::max(latest_s, end_of(step.exchanges[b].ready));
    // An exchange may hold a bucket back. Its seconds count from the start of backward, which is
    // the end of forward.
    if (!step.not_before.empty() && !input.first_step)
      latest_s = std::max(latest_s, end_of(step.forward.back()) + step.not_before[b]);
    traffic.gradients.push_back(
        {latest_s, cost::cost_curve(input.cost, collective_of(send.kind), input.ranks, send.wire)
                           .seconds(static_cast<double>(send.priced_bytes())) +
                       static_cast<double>(tensors_of(*step.graph, send)) * tensor_s});
  }
  const std::vector<std::size_t> bucket_of = bucket_of_gradients(input, step);
  for (const PlannedBlock& block : input.curvature->blocks) {
    std::size_t& last = traffic.last_bucket_of_blocks.emplace_back(0);
    for (const std::int32_t p : block.gradients) last = std::max(last, bucket_of[to_index(p)]);
  }
  return traffic;
}

std::int64_t tensors_of(const doc::TaskGraph& graph, const doc::Task& task) {
  if (task.subject != doc::Subject::payloads) return 0;
  std::int64_t tensors = 0;
  for (std::int32_t p = task.first; p <= task.last; ++p) {
    const doc::Payload* payload = &graph.payloads[to_index(p)];
    while (payload->of >= 0) payload = &graph.payloads[to_index(payload->of)];
    tensors += std::max(1, payload->end - payload->begin);
  }
  return tensors;
}

void add_tensor_times(double tensor_s, doc::TaskGraph& graph) {
  if (!(tensor_s > 0)) return;
  for (doc::Task& task : graph.tasks)
    if (doc::is_communication(task.kind))
      task.seconds += tensor_s * static_cast<double>(tensors_of(graph, task));
}

}  // namespace linerate::plan
