// T_1 is what a step would take if one rank computed alone. A recording of several ranks has more
// in it, and each part is taken off by its own estimate:
//
// 1. exposed communication, which is measured
// 2. the work of a hook on the exchange, which a rank alone does not need
// 3. what computation lost because data moved at the same time (contention/slowdown.hpp)
// 4. waits of the device for a host that could keep ahead of it
// 5. half of the time between kernels, which a profiler lengthens
//
// Example, without parts 2 and 5. A step takes 60 ms and 15 ms of communication are exposed: 45 ms.
// For 10 ms computation ran at the same time as data moved, 1.25 times slower, and lost 2 ms: 43
// ms. In 3 of these the device waited for its host. The host itself works for 41 ms a step, so a
// step alone cannot take 40 ms: T_1 is 41 ms.
//
// The parts are uncertain by themselves, so their errors add as squares. Two parts that could each
// be off, by 3 and by 4 ms, widen the interval by 5 ms.
#include "linerate/trace/to_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/contention/slowdown.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

bool exchanges_gradients(const Job& job) {
  return std::ranges::any_of(job.ranks, [&job](const RankActivity& r) {
    return std::ranges::any_of(r.communications, [&job](const Communication& c) {
      return c.gradients && c.group_size != 1 && (carries_gradients(c.op) || !job.strategy.empty());
    });
  });
}

/// Finds T_1 and the job at the times of a rank alone. The constructor does the work; `job` must
/// outlive the object.
class Alone {
 public:
  explicit Alone(const Job& job)
      : job_(job), periods_(in_periods(job)), recorded_(typical_steps(timed())) {
    if (!recorded_.step_s) return;
    host_s_ = recorded_.host_s;
    waits_ = waits_for_host(job_), gaps_ = between_kernels(job_);
    between_operators_ = waits_between_operators(job_);
    if (exchanges_gradients(job_)) {
      overlap_ = overlap_of(job_);
      leave_out_hook();
      slowdown_ = compute_slowdown(overlap_);
      step_s_ = among_others();
    } else {
      step_s_ = as_recorded();
    }
  }

  /// T_1. Absent if no step is marked. Also absent if a job of several ranks shows no communication
  /// and no kernel sounds like it. Kernels that sound like it may be taken off: the interval allows
  /// for both.
  std::optional<OneRankTime> time() const {
    if (!recorded_.step_s || (job_.communication_unknown && job_.may_communicate.empty()))
      return std::nullopt;
    doc::Bounded step_s = step_s_;
    if (!job_.may_communicate.empty())
      step_s = {step_s.value, std::max(0.0, step_s.low_or_value() - may_communicate_s()),
                step_s.high_or_value()};
    return OneRankTime{step_s, origin()};
  }

  AloneSteps steps() const {
    AloneSteps out{.job = without_shares(job_), .time = time()};
    // Under a hook, or after a turn, backward waits for exchanges. It may also wait for other
    // collectives. A rank alone does not, so these waits make no gradient ready later.
    if (out.time && exchanges_gradients(job_) &&
        (!none(hook_) || job_.gradients.empty() || job_.gradients.back().turn > 0 ||
         backward_waits(purposes_of(job_))))
      out.job = without(out.job, {{exposed_communication_of(out.job), 1}});
    if (!out.time) return out;
    find_typical_step(out.job);
    TypicalSteps own = typical_steps(out.job);
    out.forward_s = own.forward_s;
    if (periods_) own = typical_steps(without_shares(timed()));
    out.notes = std::move(own.notes);
    say_profiler(out.notes);
    return out;
  }

 private:
  /// A rank alone needs no hook, so its time is left out whole. Time of the hook must not be taken
  /// off a second time, as a wait or as overlap.
  void leave_out_hook() {
    hook_ = hook_times(job_);
    if (none(hook_)) return;
    for (std::vector<SpanSet>* of_ranks :
         {&waits_, &between_operators_, &gaps_, &overlap_.during_transfers,
          &overlap_.during_communication})
      for (std::size_t r = 0; r < of_ranks->size(); ++r)
        (*of_ranks)[r] = difference_of((*of_ranks)[r], hook_[r]);
    Job job = timed();
    for (RankActivity& rank : job.ranks)
      rank.host = difference_of(union_of(rank.host), union_of(rank.exchange_calls));
    host_s_ = typical_steps(job).host_s;
  }

  /// Seconds a step of kernels that only sound like communication, on the rank with most of it.
  double may_communicate_s() const {
    double most = 0;
    for (const RankActivity& rank : timed().ranks) {
      const SpanSet all = union_of(rank.may_communicate);
      if (rank.steps.empty()) continue;
      const std::vector<double> steps = mapped(windows_of_steps(rank), [&](const Span& window) {
        return seconds_of(clipped(all, window));
      });
      most = std::max(most, median(steps) / timed().updates);
    }
    return most;
  }

  static double lost(double factor) { return 1 - 1 / factor; }
  /// Which shares of what several ranks and the profiler add are left out.
  struct Shares {
    double lost = 0;     // of computation during communication, 1 - 1 / slowdown
    double waits = 0;    // of the waits for the host
    double between = 0;  // of the waits for what the host does between operators
    double gaps = 0;     // of the time between kernels
  };

  /// The job whose steps T_1 is the median of: whole periods, if steps repeat every few.
  const Job& timed() const { return periods_ ? *periods_ : job_; }
  std::vector<LeftOut> left_out(const Shares& shares, const std::vector<SpanSet>& beside) const {
    return {{beside, shares.lost},
            {waits_, shares.waits},
            {between_operators_, shares.between},
            {gaps_, shares.gaps},
            {hook_, 1}};
  }
  Job without_shares(const Job& job) const {
    return without(job, left_out(left_out_, overlap_.during_transfers));
  }
  double step_without(const Shares& shares, const std::vector<SpanSet>& beside) const {
    const std::vector<LeftOut> all = left_out(shares, beside);
    const bool nothing =
        std::ranges::all_of(all, [](const LeftOut& l) { return l.share == 0 || none(l.spans); });
    return nothing ? recorded_.step_s->value : typical_steps(without(timed(), all)).step_s->value;
  }

  doc::Bounded as_recorded() const {
    return with_interval(recorded_.step_s->value,
                         {step_without({.waits = 1}, {}), step_without({.between = 1}, {}),
                          step_without({.gaps = 1}, {})},
                         step_without({.waits = 1, .between = 1, .gaps = 1}, {}));
  }

  /// T_1 of a job of several ranks. Each end of the interval changes one share and keeps the
  /// others.
  doc::Bounded among_others() {
    const double least = slowdown_.slowdown ? slowdown_.slowdown->low : 1;
    const double factor = slowdown_.slowdown ? slowdown_.slowdown->factor : 1;
    const double most = slowdown_.slowdown ? slowdown_.slowdown->high : kWidestSlowdown;
    const std::vector<SpanSet>& transfers = overlap_.during_transfers;
    constexpr double kGaps = 0.5;  // between none of them and all, as nothing says more
    left_out_ = {.lost = lost(factor), .gaps = kGaps};
    const auto with = [&](double Shares::*share, double value, const std::vector<SpanSet>& beside) {
      Shares shares = left_out_;
      shares.*share = value;
      return step_without(shares, beside);
    };
    const double with_waits = with(&Shares::waits, 0, transfers);
    const double without_waits = with(&Shares::waits, 1, transfers);
    // A host with less to do than its device runs ahead of it. Only the profiler and waits for
    // other ranks keep it from that. So a step alone takes as long as the host's own work or as the
    // device without waits, whichever is longer.
    const double step_s = std::min(with_waits, std::max(host_s_, without_waits));
    if (with_waits > without_waits)
      left_out_.waits = (with_waits - step_s) / (with_waits - without_waits);
    return with_interval(step_s,
                         {with_waits, without_waits, with(&Shares::between, 1, transfers),
                          with(&Shares::lost, lost(most), overlap_.during_communication),
                          with(&Shares::lost, lost(least), transfers),
                          with(&Shares::gaps, 1, transfers), with(&Shares::gaps, 0, transfers)},
                         step_without({.lost = lost(most), .waits = 1, .between = 1, .gaps = 1},
                                      overlap_.during_communication));
  }

  /// `ends`: T_1 with one of its parts as small or as large as it may be. Parts are independent, so
  /// squares of their errors add up, with that of the median's own error. `least`: T_1 with all
  /// parts as small as may be, below which no interval goes. No interval if nothing is uncertain.
  doc::Bounded with_interval(double step_s, const std::vector<double>& ends, double least) const {
    const doc::Bounded median = *typical_steps(without_shares(timed())).step_s;
    double below = median.value - *median.low, above = *median.high - median.value;
    const double lowest = std::max(0.0, std::min(least, step_s) - below);
    for (const double end : ends)
      (end < step_s ? below : above) = std::hypot(end < step_s ? below : above, end - step_s);
    if (below + above == 0) return {step_s};
    return {step_s, std::max(lowest, step_s - below), step_s + above};
  }

  std::string origin() const {
    if (job_.may_communicate.empty()) return known_origin();
    return known_origin() +
           "; kernels that sound like communication are in it, and the interval allows for both "
           "cases";
  }

  std::string known_origin() const {
    const std::string what = fmt::format("median of {} step{} of {} rank{}", recorded_.steps,
                                         recorded_.steps == 1 ? "" : "s", job_.ranks.size(),
                                         job_.ranks.size() == 1 ? "" : "s");
    if (!exchanges_gradients(job_)) return what + " without exchange, as recorded";
    std::string text = what + " less exposed communication";
    if (!none(hook_)) text += ", what a hook on it takes";
    if (left_out_.waits > 0) text += " and waits for the host";
    if (none(overlap_.during_communication)) return text;
    if (!slowdown_.slowdown)
      return text +
             fmt::format(
                 "; it is not known how much slower computation ran during communication, so the "
                 "interval allows up to {:.2f} times (--alone TRACE of one rank says it)",
                 kWidestSlowdown);
    const Slowdown& found = *slowdown_.slowdown;
    const std::string slower =
        found.factor < 1.005 ? "no slower" : fmt::format("{:.2f} times slower", found.factor);
    return text + fmt::format(
                      "; during communication computation ran {} ({:.2f} to {:.2f}), and T_1 is "
                      "without that",
                      slower, found.low, found.high);
  }

  static bool none(const std::vector<SpanSet>& ranks) {
    return std::ranges::all_of(ranks, [](const SpanSet& s) { return s.empty(); });
  }

  void say_profiler(std::vector<std::string>& notes) const {
    const double all = recorded_.step_s->value;
    const double waits = all - step_without({.waits = 1}, {});
    const double gaps = all - step_without({.gaps = 1}, {});
    if (waits + gaps <= kWorthNaming * step_s_.value) return;
    notes.push_back(fmt::format(
        "the recorded steps include the profiler's own work: in each the device waits {} for a "
        "host that the profiler slows, and {} pass between kernels. T_1's interval allows for none "
        "of it. For a better T_1 time a step without the profiler (--step-time)",
        format_time(waits), format_time(gaps)));
  }

  static constexpr double kWorthNaming = 0.01;

  const Job& job_;
  std::optional<Job> periods_;
  TypicalSteps recorded_;
  doc::Bounded step_s_;
  double host_s_ = 0;  // the host at work in a step, not for a hook
  std::vector<SpanSet> waits_, between_operators_, gaps_, hook_;
  Overlap overlap_;
  SlowdownFound slowdown_;
  Shares left_out_;
};

/// Elements and types of the gradients, in any order.
std::vector<std::pair<std::int64_t, DType>> sizes_of(const Job& job) {
  auto sizes =
      mapped(job.gradients, [](const GradientRecord& g) { return std::pair(g.elements, g.dtype); });
  std::ranges::sort(sizes);
  return sizes;
}

std::string gradients_in_words(const Job& job) {
  std::int64_t elements = 0;
  for (const GradientRecord& g : job.gradients) elements += g.elements;
  return fmt::format("{} of {} elements", job.gradients.size(), elements);
}

/// Throws InputError if `alone` is not one rank of the same model without exchange.
void check_alone(const Job& job, const Job& alone) {
  const std::string place = alone.ranks.empty() ? "--alone" : alone.ranks.front().source;
  if (exchanges_gradients(alone))
    throw InputError(place,
                     "--alone: expected one rank that exchanges no gradients, found exchanges; "
                     "record the model without DistributedDataParallel, or on one rank");
  if (std::ranges::all_of(alone.ranks, [](const RankActivity& r) { return r.steps.empty(); }))
    throw InputError(place,
                     "--alone: expected marked steps (ProfilerStep#n), found none: record with a "
                     "schedule and call step() of the profiler");
  if (!alone.gradients.empty() && !job.gradients.empty() && sizes_of(alone) != sizes_of(job))
    throw InputError(place, fmt::format("--alone: expected the job's gradients, {}, found {}: not "
                                        "the same model",
                                        gradients_in_words(job), gradients_in_words(alone)));
  if (alone.accumulation.passes != job.accumulation.passes)
    throw InputError(
        place, fmt::format("--alone: expected {} backward passes to an optimizer step, found {}",
                           job.accumulation.passes, alone.accumulation.passes));
}

}  // namespace

AloneSteps alone_steps(const Job& job) {
  AloneSteps steps = Alone(job).steps();
  if (job.one_rank) steps.time = job.one_rank, steps.notes.clear();
  return steps;
}

AloneSteps alone_steps(const Job& job, const Job& alone) {
  check_alone(job, alone);
  AloneSteps steps = alone_steps(alone);
  // Recorded without shapes it knows the step and not when its gradients were ready.
  if (steps.job.gradients.empty()) steps.job = alone_steps(job).job;
  return steps;
}

void find_one_rank_time(Job& job, const std::optional<Job>& alone) {
  if (alone) check_alone(job, *alone);
  if (alone || !job.one_rank) job.one_rank = Alone(alone ? *alone : job).time();
}

}  // namespace linerate::trace
