// Steps of 45, 46, 44 and 80 ms on rank 0, and 62 ms each on rank 1. The median of rank 0 is 45.5
// ms, so its slow step does not count. Rank 1 is more than 10 % above it, so it is not typical: T_1
// is 45.5 ms. Notes name the slow step and the slow rank.
//
// The interval of a median needs no assumption on how steps scatter. Of n steps, the order
// statistics around the middle contain the true median in 90 % of cases.
#include "linerate/trace/typical_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/exposed_communication.hpp"
#include "linerate/trace/contention/alone.hpp"
#include "linerate/trace/job/typical_step.hpp"

namespace linerate::trace {
namespace {

constexpr double kWorthSaying = kAlike;  // what is left out without a word is below this

/// One step of a rank, without its exposed communication.
struct OwnStep {
  std::string label;
  bool cut = false;
  double seconds = 0;
  double pause_s = 0;  // the longest time in which neither host nor device did anything
};

/// Leaves out steps that the recording's end cut, unless all were cut.
std::vector<OwnStep> without_cut(std::vector<OwnStep> steps) {
  const auto cut = [](const OwnStep& s) { return s.cut; };
  if (!std::all_of(steps.begin(), steps.end(), cut)) std::erase_if(steps, cut);
  return steps;
}

/// A rank without its communication.
class TimeAlone {
 public:
  TimeAlone(const RankActivity& r, bool on_device) : rank_(r), compute_(at_work(r, on_device)) {
    std::vector<Span> sent;
    for (const Communication& c : r.communications) sent.push_back(c.span);
    const SpanSet communication = union_of(std::move(sent));
    exposed_ = doc::exposed_communication(communication, compute_);
    busy_ =
        union_of(union_of(compute_, communication), union_of(union_of(r.copies), union_of(r.host)));
  }

  double seconds_in(Span window) const {
    return std::max(0.0, window.seconds() - seconds_of(clipped(exposed_, window)));
  }

  std::vector<OwnStep> steps() const {
    const std::vector<Span> windows = windows_of_steps(rank_);
    std::vector<OwnStep> own;
    for (std::size_t i = 0; i < rank_.steps.size(); ++i) {
      const StepSpan& step = rank_.steps[i];
      // Without the device the step's own length, as its mark has it; what it sent may be exposed
      // until the next one.
      const Span whole = step.on_device.value_or(step.span);
      const double exposed = seconds_of(clipped(exposed_, windows[i]));
      own.push_back({.label = step.label(),
                     .cut = step.cut || step.partial,
                     .seconds = std::max(0.0, whole.seconds() - exposed),
                     .pause_s = longest_pause(whole)});
    }
    return without_cut(std::move(own));
  }

  /// When this step began, on the device if that is known.
  std::int64_t start_of(std::int32_t step) const {
    const StepSpan& s = rank_.steps[to_index(step)];
    return s.on_device.value_or(s.span).start_ns;
  }

  /// The host at work in a step, the median: not in what it waited for outside of operators.
  double host_s() const {
    const SpanSet host = union_of(rank_.host);
    std::vector<double> seconds;
    for (const StepSpan& s : rank_.steps) seconds.push_back(seconds_of(clipped(host, s.span)));
    return seconds.empty() ? 0 : median(seconds);
  }

 private:
  double longest_pause(Span window) const {
    double longest = 0;
    for (const Span& s : difference_of({window}, clipped(busy_, window)))
      longest = std::max(longest, s.seconds());
    return longest;
  }

  const RankActivity& rank_;
  SpanSet compute_, exposed_, busy_;
};

/// Medians over the steps of a rank, and between what that of the seconds lies.
struct Medians {
  doc::Bounded seconds;
  double pause_s = 0;
};

Medians medians_of(const std::vector<OwnStep>& steps) {
  std::vector<double> seconds, pauses;
  for (const OwnStep& s : steps) seconds.push_back(s.seconds), pauses.push_back(s.pause_s);
  // The order statistics between which the median lies in 90 % of cases.
  const double around =
      std::min(0.5, kNormal90 / 2 / std::sqrt(static_cast<double>(seconds.size())));
  return {{median(seconds), quantile(seconds, 0.5 - around), quantile(seconds, 0.5 + around)},
          median(pauses)};
}

/// Steps of all ranks without communication, and what stands out among them.
class Finder {
 public:
  explicit Finder(const Job& job) : job_(job) {
    for (const RankActivity& r : job.ranks) {
      const TimeAlone& own = own_.emplace_back(r, !job.cpu_device);
      steps_.push_back(own.steps());
      medians_.push_back(steps_.back().empty() ? std::nullopt
                                               : std::optional(medians_of(steps_.back())));
    }
  }

  TypicalSteps find() const {
    TypicalSteps found;
    std::vector<double> totals, lows, highs, forwards, hosts;
    const double updates = job_.updates;
    for (std::size_t r = 0; r < medians_.size(); ++r) {
      if (!medians_[r]) continue;
      totals.push_back(medians_[r]->seconds.value / updates);
      lows.push_back(*medians_[r]->seconds.low / updates);
      highs.push_back(*medians_[r]->seconds.high / updates);
      hosts.push_back(own_[r].host_s() / updates);
      found.steps += steps_[r].size() * to_index(job_.updates);
      if (const auto forward = forward_of(r)) forwards.push_back(*forward);
    }
    if (totals.empty()) return found;
    const double step_s = typical_of_ranks(totals);
    found.step_s = doc::Bounded{step_s, std::min(step_s, typical_of_ranks(lows)),
                                std::max(step_s, typical_of_ranks(highs))};
    found.host_s = typical_of_ranks(hosts);
    if (!forwards.empty()) found.forward_s = typical_of_ranks(forwards);
    say_slow_ranks(step_s, found.notes);
    say_slow_steps(found.notes);
    say_pauses(step_s, found.notes);
    return found;
  }

 private:
  /// What comes before the last pass of a step.
  std::optional<double> forward_of(std::size_t r) const {
    std::vector<double> times;
    for (const BackwardPass* pass : exchanging_passes(job_, job_.ranks[r])) {
      const std::int64_t start = own_[r].start_of(pass->step);
      times.push_back(own_[r].seconds_in({start, std::max(start, pass->span.start_ns)}));
    }
    return times.empty() ? std::nullopt : std::optional(median(times));
  }

  std::string rank_name(std::size_t r) const {
    return job_.ranks[r].rank < 0 ? job_.ranks[r].source
                                  : fmt::format("rank {}", job_.ranks[r].rank);
  }

  void say_slow_ranks(double step_s, std::vector<std::string>& notes) const {
    for (std::size_t r = 0; r < medians_.size(); ++r) {
      const double more = medians_[r] ? medians_[r]->seconds.value / job_.updates - step_s : 0;
      if (more <= kWorthSaying * step_s) continue;
      const bool pauses = medians_[r]->pause_s > kWorthSaying * medians_[r]->seconds.value;
      notes.push_back(fmt::format(
          "{} takes {} longer for itself in each step than T_1, which leaves it out: a "
          "sleep, a slow loader or a slower device{}",
          rank_name(r), format_time(more),
          pauses
              ? fmt::format("; nothing runs for {} of the step", format_time(medians_[r]->pause_s))
              : ""));
    }
  }

  void say_slow_steps(std::vector<std::string>& notes) const {
    for (std::size_t r = 0; r < steps_.size(); ++r) {
      if (!medians_[r]) continue;
      const double usual = medians_[r]->seconds.value;
      std::vector<std::string> slow;
      for (const OwnStep& s : steps_[r])
        if (s.seconds - usual > kWorthSaying * usual)
          slow.push_back(
              fmt::format("step {} by {}{}", s.label, format_time(s.seconds - usual),
                          s.pause_s > (s.seconds - usual) / 2
                              ? fmt::format(" (nothing runs for {})", format_time(s.pause_s))
                              : ""));
      constexpr std::size_t kShown = 4;
      if (slow.empty()) continue;
      const std::size_t more = slow.size() > kShown ? slow.size() - kShown : 0;
      slow.resize(slow.size() - more);
      notes.push_back(fmt::format(
          "{}: these steps took longer for themselves than the median, so T_1 leaves the extra "
          "time out: {}{}",
          rank_name(r), join(slow, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
    }
  }

  /// What repeats in every step belongs to T_1, however idle.
  void say_pauses(double step_s, std::vector<std::string>& notes) const {
    std::vector<double> pauses;
    for (const auto& medians : medians_)
      if (medians) pauses.push_back(medians->pause_s);
    const double pause = typical_of_ranks(std::move(pauses));
    if (pause > kWorthSaying * step_s * job_.updates)
      notes.push_back(
          fmt::format("T_1 includes a pause of {} that repeats in every {}, in which neither host "
                      "nor device does anything (a sleep, or waiting for data)",
                      format_time(pause),
                      job_.updates > 1 ? fmt::format("period of {} steps", job_.updates) : "step"));
  }

  const Job& job_;
  std::vector<TimeAlone> own_;
  std::vector<std::vector<OwnStep>> steps_;
  std::vector<std::optional<Medians>> medians_;  // absent: no step is marked
};

}  // namespace

TypicalSteps typical_steps(const Job& job) { return Finder(job).find(); }

}  // namespace linerate::trace
