#include "linerate/trace/one_rank_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/exposed_communication.hpp"
#include "linerate/trace/job/typical_step.hpp"

namespace linerate::trace {
namespace {

// Noise of steps on a busy machine is a few percent; what is left out without a word is below this.
constexpr double kWorthSaying = 0.1;

/// One marked step of a rank, without its exposed communication.
struct OwnStep {
  std::int64_t number = 0;
  int place = 0;  // places_of_steps
  double seconds = 0;
  double pause_s = 0;  // the longest time in which neither host nor device did anything
};

/// A rank without its communication.
class TimeAlone {
 public:
  explicit TimeAlone(const RankActivity& r) : rank_(r), compute_(union_of(r.compute)) {
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
    std::vector<OwnStep> own;
    for (std::size_t i = 0; i < rank_.steps.size(); ++i) {
      const StepSpan& step = rank_.steps[i];
      if (!places[i]) continue;
      const bool followed =
          i + 1 < rank_.steps.size() && rank_.steps[i + 1].number == step.number + 1;
      const Span window = doc::window_of_step(
          step.span, followed ? std::optional(rank_.steps[i + 1].span) : std::nullopt);
      // The step's own length, as its mark has it; what it sent may be exposed until the next one.
      const double exposed = seconds_of(clipped(exposed_, window));
      own.push_back({.number = step.number,
                     .place = *places[i],
                     .seconds = std::max(0.0, step.span.seconds() - exposed),
                     .pause_s = longest_pause(step.span)});
    }
    return own;
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

/// Seconds by place, medians over steps; and the same of the pauses.
struct Places {
  std::map<int, double> seconds, pause_s;

  double total() const {
    double sum = 0;
    for (const auto& [place, s] : seconds) sum += s;
    return sum;
  }
  bool whole(const Accumulation& a) const { return std::ssize(seconds) == a.steps; }
};

Places places_of(const std::vector<OwnStep>& steps) {
  std::map<int, std::vector<double>> seconds, pauses;
  for (const OwnStep& s : steps)
    seconds[s.place].push_back(s.seconds), pauses[s.place].push_back(s.pause_s);
  Places p;
  for (const auto& [place, values] : seconds) p.seconds[place] = median(values);
  for (const auto& [place, values] : pauses) p.pause_s[place] = median(values);
  return p;
}

class Finder {
 public:
  explicit Finder(const Job& job) : job_(job) {
    for (const RankActivity& r : job.ranks) {
      const TimeAlone& own = own_.emplace_back(r);
      steps_.push_back(own.steps(job.accumulation));
      places_.push_back(places_of(steps_.back()));
    }
  }

  OneRankStep find() {
    OneRankStep found;
    std::vector<double> totals, forwards;
    for (std::size_t r = 0; r < places_.size(); ++r) {
      if (!places_[r].whole(job_.accumulation)) continue;
      totals.push_back(places_[r].total());
      if (const auto forward = forward_of(r)) forwards.push_back(*forward);
    }
    if (totals.empty()) return found;
    found.step_s = lower_median(totals);
    if (!forwards.empty()) found.forward_s = lower_median(forwards);
    say_slow_ranks(*found.step_s, found.notes);
    say_slow_steps(found.notes);
    say_pauses(*found.step_s, found.notes);
    return found;
  }

 private:
  /// The steps that only accumulate, and the part of the last one before its last pass.
  std::optional<double> forward_of(std::size_t r) const {
    std::vector<double> times;
    for (const BackwardPass* pass : exchanging_passes(job_, job_.ranks[r])) {
      const Span& step = job_.ranks[r].steps[static_cast<std::size_t>(pass->step)].span;
      times.push_back(
          own_[r].seconds_in({step.start_ns, std::max(step.start_ns, pass->span.start_ns)}));
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
    const double pause = lower_median(std::move(pauses));
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

OneRankStep one_rank_step(const Job& job) { return Finder(job).find(); }

}  // namespace linerate::trace
