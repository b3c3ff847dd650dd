#include "linerate/trace/typical_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
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

/// One marked step of a rank, without its exposed communication.
struct OwnStep {
  std::int64_t number = 0;
  bool cut = false;
  int place = 0;  // places_of_steps
  double seconds = 0;
  double pause_s = 0;  // the longest time in which neither host nor device did anything
};

/// Those that the recording's end did not cut, if there are others of their place.
std::vector<OwnStep> without_cut(std::vector<OwnStep> steps) {
  std::map<int, int> whole;
  for (const OwnStep& s : steps) whole[s.place] += !s.cut;
  std::erase_if(steps, [&](const OwnStep& s) { return s.cut && whole[s.place] > 0; });
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

  std::vector<OwnStep> steps(const Accumulation& accumulation) const {
    const std::vector<std::optional<int>> places = places_of_steps(rank_, accumulation);
    const std::vector<Span> windows = windows_of_steps(rank_);
    std::vector<OwnStep> own;
    for (std::size_t i = 0; i < rank_.steps.size(); ++i) {
      const StepSpan& step = rank_.steps[i];
      if (!places[i]) continue;
      // Without the device the step's own length, as its mark has it; what it sent may be exposed
      // until the next one.
      const Span whole = step.on_device.value_or(step.span);
      const double exposed = seconds_of(clipped(exposed_, windows[i]));
      own.push_back({.number = step.number,
                     .cut = step.cut || step.partial,
                     .place = *places[i],
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

/// Seconds by place, medians over steps, and between what these lie; and medians of the pauses.
struct Places {
  std::map<int, double> seconds, low_s, high_s, pause_s;

  static double total_of(const std::map<int, double>& by_place) {
    double sum = 0;
    for (const auto& [place, s] : by_place) sum += s;
    return sum;
  }
  double total() const { return total_of(seconds); }
  bool whole(const Accumulation& a) const { return std::ssize(seconds) == a.steps; }
};

Places places_of(const std::vector<OwnStep>& steps) {
  std::map<int, std::vector<double>> seconds, pauses;
  for (const OwnStep& s : steps)
    seconds[s.place].push_back(s.seconds), pauses[s.place].push_back(s.pause_s);
  Places p;
  for (const auto& [place, values] : seconds) {
    // The order statistics between which the median lies in 90 % of cases.
    const double around =
        std::min(0.5, kNormal90 / 2 / std::sqrt(static_cast<double>(values.size())));
    p.seconds[place] = median(values);
    p.low_s[place] = quantile(values, 0.5 - around);
    p.high_s[place] = quantile(values, 0.5 + around);
  }
  for (const auto& [place, values] : pauses) p.pause_s[place] = median(values);
  return p;
}

class Finder {
 public:
  explicit Finder(const Job& job) : job_(job) {
    for (const RankActivity& r : job.ranks) {
      const TimeAlone& own = own_.emplace_back(r, !job.cpu_device);
      steps_.push_back(own.steps(job.accumulation));
      places_.push_back(places_of(steps_.back()));
    }
  }

  TypicalSteps find() const {
    TypicalSteps found;
    std::vector<double> totals, lows, highs, forwards, hosts;
    for (std::size_t r = 0; r < places_.size(); ++r) {
      if (!places_[r].whole(job_.accumulation)) continue;
      totals.push_back(places_[r].total());
      lows.push_back(Places::total_of(places_[r].low_s));
      highs.push_back(Places::total_of(places_[r].high_s));
      hosts.push_back(own_[r].host_s() * job_.accumulation.steps);
      found.steps += steps_[r].size();
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
  /// The steps that only accumulate, and the part of the last one before its last pass.
  std::optional<double> forward_of(std::size_t r) const {
    std::vector<double> times;
    for (const BackwardPass* pass : exchanging_passes(job_, job_.ranks[r])) {
      const std::int64_t start = own_[r].start_of(pass->step);
      times.push_back(own_[r].seconds_in({start, std::max(start, pass->span.start_ns)}));
    }
    if (times.empty()) return std::nullopt;
    double forward = median(times);
    for (const auto& [place, s] : places_[r].seconds)
      if (place + 1 < job_.accumulation.steps) forward += s;
    return forward;
  }

  std::string rank_name(std::size_t r) const {
    return job_.ranks[r].rank < 0 ? job_.ranks[r].source
                                  : fmt::format("rank {}", job_.ranks[r].rank);
  }

  void say_slow_ranks(double step_s, std::vector<std::string>& notes) const {
    for (std::size_t r = 0; r < places_.size(); ++r) {
      const double more = places_[r].whole(job_.accumulation) ? places_[r].total() - step_s : 0;
      if (more <= kWorthSaying * step_s) continue;
      notes.push_back(fmt::format(
          "{} takes {} longer for itself in each step than T_1, which leaves it out: a sleep, a "
          "slow loader or a slower device{}",
          rank_name(r), format_time(more), pause_text(r)));
    }
  }

  std::string pause_text(std::size_t r) const {
    double longest = 0;
    for (const auto& [place, s] : places_[r].pause_s) longest = std::max(longest, s);
    return longest <= kWorthSaying * places_[r].total()
               ? ""
               : fmt::format("; nothing runs for {} of the step", format_time(longest));
  }

  void say_slow_steps(std::vector<std::string>& notes) const {
    for (std::size_t r = 0; r < steps_.size(); ++r) {
      std::vector<std::string> slow;
      for (const OwnStep& s : steps_[r]) {
        const double usual = places_[r].seconds.at(s.place);
        if (s.seconds - usual > kWorthSaying * places_[r].total())
          slow.push_back(
              fmt::format("step {} by {}{}", s.number, format_time(s.seconds - usual),
                          s.pause_s > (s.seconds - usual) / 2
                              ? fmt::format(" (nothing runs for {})", format_time(s.pause_s))
                              : ""));
      }
      constexpr std::size_t kShown = 4;
      if (slow.empty()) continue;
      const std::size_t more = slow.size() > kShown ? slow.size() - kShown : 0;
      slow.resize(slow.size() - more);
      notes.push_back(fmt::format(
          "{}: steps that took longer for themselves than the median, left out of T_1: {}{}",
          rank_name(r), join(slow, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
    }
  }

  /// What repeats in every step belongs to T_1, however idle.
  void say_pauses(double step_s, std::vector<std::string>& notes) const {
    std::vector<double> pauses;
    for (const Places& p : places_) {
      if (!p.whole(job_.accumulation)) continue;
      double longest = 0;
      for (const auto& [place, s] : p.pause_s) longest = std::max(longest, s);
      pauses.push_back(longest);
    }
    const double pause = typical_of_ranks(std::move(pauses));
    if (pause > kWorthSaying * step_s)
      notes.push_back(fmt::format(
          "T_1 holds a pause of {} that repeats in every step, in which neither host nor device "
          "does anything (a sleep, waiting for data)",
          format_time(pause)));
  }

  const Job& job_;
  std::vector<TimeAlone> own_;
  std::vector<std::vector<OwnStep>> steps_;
  std::vector<Places> places_;
};

}  // namespace

TypicalSteps typical_steps(const Job& job) { return Finder(job).find(); }

}  // namespace linerate::trace
