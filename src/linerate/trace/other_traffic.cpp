// What is a collective for? Traces do not say. Four things tell: its place between phases, whether
// the computation waited for it, what others of the same kind did, and its size.
//
// Examples. An all-gather with forward before it, for which the computation waits, is of a norm
// layer that sums statistics over the ranks. An all-reduce in backward for which nothing waits
// carries gradients. All-gathers after the optimizer that move half of the gradients' bytes or more
// are parameters, as ZeRO sends them. An all-reduce of four bytes after the optimizer is a loss.
//
// Single cases mislead: the last sum of statistics in backward may have no computation after it. So
// collectives of one kind (operation, bytes, ranks) decide together, by majority.
#include "linerate/trace/to_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/contention/slowdown.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

/// What a rank was doing at some time, and what it does next. `work`: its computation, by start.
/// The rank must outlive the object.
class Doing {
 public:
  Doing(const RankActivity& rank, SpanSet work)
      : rank_(rank), work_(std::move(work)), windows_(windows_of_steps(rank)) {}

  double exposed_share(Span span) const {
    return span.length() <= 0 ? 0 : 1 - seconds_of(clipped(work_, span)) / span.seconds();
  }

  /// Where a communication stands, if it is not of gradients.
  SentFor place_of(const Communication& c) const {
    const std::int64_t asked = asked_ns(c);
    const StepPhase before = phase_of_work_before(asked);
    const StepPhase next = phase_of_work_after(c.span.end_ns, c.step);
    if (before == StepPhase::forward) return SentFor::forward;
    if (before == StepPhase::backward && is_in_pass(c.step, asked).value_or(next == before))
      return SentFor::backward;
    if (next == StepPhase::forward) return SentFor::forward;  // buffers, before the pass
    return before == StepPhase::optimizer ? SentFor::update : SentFor::elsewhere;
  }

 private:
  StepPhase phase_of_work_before(std::int64_t ns) const {
    const Span* before = last_begun(work_, ns - 1);
    return before == nullptr ? StepPhase::unknown
                             : phase_at(rank_.phases, std::min(ns, before->end_ns) - 1);
  }

  StepPhase phase_of_work_after(std::int64_t ns, std::int32_t step) const {
    const auto next = std::ranges::upper_bound(work_, ns, {}, &Span::end_ns);
    const std::int64_t at = next == work_.end() ? INT64_MAX : std::max(ns, next->start_ns);
    return at < windows_[to_index(step)].end_ns ? phase_at(rank_.phases, at) : StepPhase::unknown;
  }

  /// Unknown if no pass of the step is recorded.
  std::optional<bool> is_in_pass(std::int32_t step, std::int64_t ns) const {
    std::optional<bool> inside;
    for (const BackwardPass& p : rank_.passes)
      if (p.step == step)
        inside = inside.value_or(false) || (p.span.start_ns <= ns && ns < p.span.end_ns);
    return inside;
  }

  const RankActivity& rank_;
  SpanSet work_;
  std::vector<Span> windows_;
};

/// What is alike: what it is, bytes, ranks.
using Alike = std::tuple<CommOp, std::int64_t, std::int32_t>;
Alike alike_of(const Communication& c) { return {c.op, c.bytes, c.group_size}; }

struct Counts {
  double times = 0;
  double inside = 0;  // of `times`: backward goes on after it
  double waits = 0;   // sum of the shares in which the rank was not at work
  bool mostly(double Counts::*what) const { return 2 * (this->*what) > times; }
};

/// Decides in two passes. The constructor finds the place of each communication and counts by kind.
/// find() then decides for each one, with the majority of its kind.
class PurposeFinder {
 public:
  explicit PurposeFinder(const Job& job) : job_(job) {
    for (const RankActivity& r : job.ranks) {
      const Doing doing(r, at_work(r, !job.cpu_device));
      buckets_.push_back(gradients_of_exchanges(job, r));
      std::vector<SentFor>& places =
          places_.emplace_back(r.communications.size(), SentFor::gradients);
      std::vector<bool>& sized = sized_.emplace_back(r.steps.size(), false);
      for (std::size_t i = 0; i < places.size(); ++i) {
        const Communication& c = r.communications[i];
        if (c.step < 0) continue;
        places[i] = doing.place_of(c);
        if (buckets_.back()[i]) sized[to_index(c.step)] = by_sizes_ = true;
        Counts& counts = counts_[alike_of(c)];
        counts.times += 1;
        counts.inside += places[i] == SentFor::backward ? 1 : 0;
        counts.waits += doing.exposed_share(c.span);
      }
    }
  }

  std::vector<std::vector<SentFor>> find() {
    for (std::size_t r = 0; r < places_.size(); ++r)
      for (std::size_t i = 0; i < places_[r].size(); ++i) places_[r][i] = purposes_of(r, i);
    keep_updates_of_parameters();
    return std::move(places_);
  }

 private:
  SentFor purposes_of(std::size_t r, std::size_t i) const {
    const Communication& c = job_.ranks[r].communications[i];
    if (c.step < 0 || c.group_size == 1) return SentFor::gradients;
    const Counts& alike = counts_.at(alike_of(c));
    SentFor place = places_[r][i];
    // The last sum of statistics in backward may have no work after it.
    if (place == SentFor::elsewhere && alike.mostly(&Counts::inside)) place = SentFor::backward;
    if (may_carry_gradients(r, i, c, place, alike)) return SentFor::gradients;
    return c.bytes > 0 && alike.mostly(&Counts::waits) ? place : SentFor::elsewhere;
  }

  /// Whether a communication may carry gradients. If the sizes of buckets are known in its step,
  /// they decide. Else backward waits for no exchange of gradients, so a kind that it mostly waits
  /// for is something else. If no bucket of the job is known by its size, as under a hook, anything
  /// in backward may carry gradients.
  bool may_carry_gradients(std::size_t r, std::size_t i, const Communication& c, SentFor place,
                           const Counts& alike) const {
    if (c.op == CommOp::barrier || !c.gradients || !may_be_gradients(c.dtype)) return false;
    if (sized_[r][to_index(c.step)]) return buckets_[r][i].has_value();
    if (place == SentFor::forward) return false;
    const bool in_backward = place == SentFor::backward || place == SentFor::elsewhere;
    if (!job_.gradients.empty() && !by_sizes_ && in_backward) return true;
    return carries_gradients(c.op) &&
           !(alike.mostly(&Counts::inside) && alike.mostly(&Counts::waits));
  }

  /// Keeps as updates only gathers and broadcasts with at least half of the bytes of the gradients.
  /// A few numbers after an update are no parameters, and sums after it are of local SGD.
  void keep_updates_of_parameters() {
    double gradients = 0, parameters = 0;
    const auto visit = [&](const auto& see) {
      for (std::size_t r = 0; r < places_.size(); ++r)
        for (std::size_t i = 0; i < places_[r].size(); ++i)
          see(places_[r][i], job_.ranks[r].communications[i]);
    };
    visit([&](SentFor& t, const Communication& c) {
      const bool gathers = c.op == CommOp::all_gather || c.op == CommOp::broadcast;
      if (t == SentFor::update && !gathers) t = SentFor::elsewhere;
      if (t == SentFor::update) parameters += static_cast<double>(c.bytes);
      if (t == SentFor::gradients && c.step >= 0 && carries_gradients(c.op) && c.bytes > 0)
        gradients += static_cast<double>(c.bytes);
    });
    visit([&](SentFor& t, const Communication&) {
      if (t == SentFor::update && 2 * parameters < gradients) t = SentFor::elsewhere;
      if (t != SentFor::gradients && gradients == 0) t = SentFor::elsewhere;
    });
  }

  const Job& job_;
  std::vector<std::vector<std::optional<GradientRange>>> buckets_;
  std::vector<std::vector<bool>> sized_;  // by rank and step: its buckets are known
  std::vector<std::vector<SentFor>> places_;
  std::map<Alike, Counts> counts_;
  bool by_sizes_ = false;
};

// ---- what a Workload holds of it ----

/// The first ones, up to broadcasts. Their names are those of collectives.
bool may_be_held(CommOp op) { return op <= CommOp::broadcast; }

/// "8 all-gathers, 2 broadcasts and 1 barrier".
std::string in_words(const std::map<CommOp, double>& a_step) {
  std::vector<std::string> parts;
  for (const auto& [op, times] : a_step)
    parts.push_back(fmt::format("{:.3g} {}{}", times,
                                op == CommOp::unknown ? "unknown collective" : name_of(op),
                                times > 0.995 && times < 1.005 ? "" : "s"));
  const std::string last = parts.back();
  parts.pop_back();
  return parts.empty() ? last : join(parts, ", ") + " and " + last;
}

/// Number by what it is, and exposed time, of a mean step of a mean rank.
struct Sum {
  std::map<CommOp, double> times;
  double exposed_s = 0;
};

/// Where and when the same communication of a step runs, over steps and ranks.
struct Occurrences {
  std::vector<double> at_s;
  std::vector<std::vector<std::int64_t>> steps;  // by rank: positions, ascending
  bool held = false;                             // by the Workload
};

/// Collects collectives that recur at the same place of the step, as entries of the Workload. A key
/// is the place, the kind, and the position among its kind in the step. So the second all-gather of
/// 2 KiB in forward is the same in every step and on every rank.
class Holder {
 public:
  Holder(const Job& job, const std::vector<std::vector<SentFor>>& purposes, const Job& alone,
         const doc::Workload& times)
      : job_(job), purposes_(purposes), alone_(alone), times_(times) {
    for (std::size_t r = 0; r < job.ranks.size(); ++r) find_occurrences(r);
    for (auto& [key, found] : found_)
      if (const int every = every_of(found); every > 0) hold(key, found, every);
  }

  std::vector<doc::OtherCollective> take(std::vector<std::string>& notes) {
    std::ranges::stable_sort(held_,
                             [](const doc::OtherCollective& a, const doc::OtherCollective& b) {
                               return std::tie(a.place, a.at_s) < std::tie(b.place, b.at_s);
                             });
    const auto [in, out] = sums();
    if (!in.times.empty())
      notes.push_back(
          fmt::format("collectives that are not of gradients are in the Workload as "
                      "other_collectives: {} a step, for which the computation waits {}",
                      in_words(in.times), format_time(in.exposed_s)));
    if (!out.times.empty())
      notes.push_back(fmt::format(
          "collectives that are not of gradients, and in no prediction: {} a step, exposed for {}",
          in_words(out.times), format_time(out.exposed_s)));
    return std::move(held_);
  }

 private:
  /// Place, what is alike, and which of them in the step.
  using Key = std::tuple<doc::StepPlace, Alike, int>;

  bool counts(const RankActivity& r, std::int32_t step) const {
    return step >= 0 && r.steps[to_index(step)].is_whole();
  }

  void find_occurrences(std::size_t rank) {
    const RankActivity& r = job_.ranks[rank];
    const std::vector<std::optional<std::int64_t>> backward = backward_starts(rank);
    std::map<std::tuple<std::int32_t, doc::StepPlace, Alike>, int> before;
    keys_.emplace_back(r.communications.size());
    for (const std::size_t i : in_order_of_issue(r)) {
      const Communication& c = r.communications[i];
      const SentFor t = purposes_[rank][i];
      if (t == SentFor::gradients || t == SentFor::elsewhere || !counts(r, c.step) ||
          !may_be_held(c.op))
        continue;
      const auto [place, at_s] = place_of(t, alone_.ranks[rank], i, backward[to_index(c.step)]);
      const Key key{place, alike_of(c), before[{c.step, place, alike_of(c)}]++};
      keys_.back()[i] = key;
      Occurrences& found = found_[key];
      found.steps.resize(job_.ranks.size());
      found.at_s.push_back(at_s);
      found.steps[rank].push_back(c.step);
    }
  }

  /// By step, at one rank's times: when the pass began that ends in the exchange.
  std::vector<std::optional<std::int64_t>> backward_starts(std::size_t rank) const {
    const RankActivity& r = alone_.ranks[rank];
    std::vector<std::optional<std::int64_t>> starts(r.steps.size());
    for (const BackwardPass* pass : exchanging_passes(alone_, r))
      starts[to_index(pass->step)] = pass->span.start_ns;
    return starts;
  }

  /// The place of a collective in the Workload, and seconds since the begin of that pass. A
  /// Workload without a forward pass has everything in backward. Earlier passes of an accumulation
  /// are in its forward pass, and so is what they send.
  std::pair<doc::StepPlace, double> place_of(SentFor t, const RankActivity& r, std::size_t i,
                                             std::optional<std::int64_t> backward) const {
    if (t == SentFor::update) return {doc::StepPlace::update, 0};
    const Communication& c = r.communications[i];
    const StepSpan& step = r.steps[to_index(c.step)];
    const std::int64_t start = backward.value_or(step.time().start_ns);
    const double since_s = in_seconds(asked_ns(c) - start);
    if (!times_.forward_s || (t == SentFor::backward && since_s >= 0))
      return {doc::StepPlace::backward, std::clamp(since_s, 0.0, times_.backward_s)};
    return {doc::StepPlace::forward,
            std::clamp(*times_.forward_s + since_s, 0.0, *times_.forward_s)};
  }

  /// Once in how many steps it runs, the same on every rank; 0: there is no such interval. In nine
  /// of ten steps counts as in each. In steps 2, 6 and 10 is once in four.
  int every_of(const Occurrences& found) const {
    constexpr double kOfSteps = 0.9;
    int every = 0;
    for (std::size_t r = 0; r < found.steps.size(); ++r) {
      const auto& steps = found.steps[r];
      const auto all =
          static_cast<double>(std::ranges::count(job_.ranks[r].steps, true, &StepSpan::is_whole));
      int own = static_cast<double>(steps.size()) >= kOfSteps * all ? 1 : 0;
      if (own == 0 && steps.size() > 1) own = static_cast<int>(steps[1] - steps[0]);
      for (std::size_t i = 1; i < steps.size() && own > 1; ++i)
        if (steps[i] - steps[i - 1] != own) own = 0;
      if (own == 0 || (every > 0 && own != every)) return 0;
      every = own;
    }
    return every;
  }

  void hold(const Key& key, Occurrences& found, int every) {
    const auto& [place, alike, number] = key;
    const auto& [op, bytes, ranks] = alike;
    doc::OtherCollective o;
    o.collective = parse_collective(name_of(op));
    // Statistics come from every rank; parameters are as many on any number of them.
    o.per_rank = op == CommOp::all_gather && place != doc::StepPlace::update && ranks > 0 &&
                 bytes % ranks == 0;
    o.bytes = o.per_rank ? bytes / ranks : bytes;
    if (ranks > 0 && ranks < job_.world_size) o.group = ranks;
    o.place = place;
    o.at_s = median(found.at_s);
    o.every = every;
    held_.push_back(o);
    found.held = true;
  }

  std::pair<Sum, Sum> sums() const {
    std::pair<Sum, Sum> all;
    double steps = 0;
    for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank) {
      const RankActivity& r = job_.ranks[rank];
      const SpanSet work = at_work(r, !job_.cpu_device);
      std::vector<Span> in, out;
      steps += static_cast<double>(std::ranges::count(r.steps, true, &StepSpan::is_whole));
      for (std::size_t i = 0; i < r.communications.size(); ++i) {
        const Communication& c = r.communications[i];
        if (purposes_[rank][i] == SentFor::gradients || !counts(r, c.step)) continue;
        const bool held = keys_[rank][i] && found_.at(*keys_[rank][i]).held;
        (held ? all.first : all.second).times[c.op] += 1;
        (held ? in : out).push_back(c.span);
      }
      all.first.exposed_s += seconds_of(difference_of(union_of(std::move(in)), work));
      all.second.exposed_s += seconds_of(difference_of(union_of(std::move(out)), work));
    }
    for (Sum* sum : {&all.first, &all.second}) {
      for (auto& [op, times] : sum->times) times /= steps;
      sum->exposed_s /= steps;
    }
    return all;
  }

  const Job& job_;
  const std::vector<std::vector<SentFor>>& purposes_;
  const Job& alone_;
  const doc::Workload& times_;
  std::vector<std::vector<std::optional<Key>>> keys_;  // by rank and communication
  std::map<Key, Occurrences> found_;
  std::vector<doc::OtherCollective> held_;
};

}  // namespace

std::vector<std::vector<SentFor>> purposes_of(const Job& job) {
  if (job.strategy.empty()) return PurposeFinder(job).find();
  return mapped(job.ranks, [](const RankActivity& r) {
    return std::vector(r.communications.size(), SentFor::gradients);
  });
}

bool backward_waits(const std::vector<std::vector<SentFor>>& purposes) {
  return std::ranges::any_of(purposes, [](const std::vector<SentFor>& rank) {
    return std::ranges::find(rank, SentFor::backward) != rank.end();
  });
}

std::vector<doc::OtherCollective> other_collectives_of(
    const Job& job, const std::vector<std::vector<SentFor>>& purposes, const Job& alone,
    const doc::Workload& times, std::vector<std::string>& notes) {
  return Holder(job, purposes, alone, times).take(notes);
}

}  // namespace linerate::trace
