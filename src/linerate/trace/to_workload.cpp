// A Workload is what one rank computes, so all times come from the job as a rank would run it alone
// (to_workload.hpp). Gradients come from the records of backward passes. Without such records,
// each exchange stands for one gradient, which is ready when the exchange was asked for.
//
// What the job took as recorded goes along as `recorded`, for whatif and advise.
#include "linerate/trace/to_workload.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/contention/slowdown.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Counts the layers with a matrix whose factors no operator told.
void say_unknown_factors(const Job& job, std::vector<std::string>& notes) {
  std::set<int> with_matrix;
  for (const GradientRecord& g : job.gradients)
    if (g.rows > 1) with_matrix.insert(g.layer);
  std::set<std::string> kinds;
  std::size_t unknown = 0;
  for (const int i : with_matrix) {
    const LayerRecord& l = job.layers[to_index(i)];
    if (l.block) continue;
    ++unknown;
    kinds.insert(l.kind);
  }
  if (unknown > 0)
    notes.push_back(
        fmt::format("the trace does not show the Kronecker factors of {} of {} layers with a "
                    "matrix ({}), so kfac leaves them to the optimizer",
                    unknown, with_matrix.size(), fmt::join(kinds, ", ")));
}

void from_records(const Job& job, doc::Workload& w) {
  const int layers = static_cast<int>(job.layers.size());
  for (int i = layers - 1; i >= 0; --i) {  // forward order
    const LayerRecord& l = job.layers[to_index(i)];
    doc::Layer layer;
    layer.name = layer_name(job, i);
    layer.kind = l.kind;
    layer.backward_s = seconds(l.backward_ns);
    w.layers.push_back(layer);
    if (!l.block) continue;
    w.blocks.push_back(*l.block);
    w.blocks.back().layer = layers - 1 - i;
  }
  for (std::size_t i = 0; i < job.gradients.size(); ++i) {
    const GradientRecord& g = job.gradients[i];
    doc::Gradient out;
    out.name = gradient_name(job, i);
    out.elements = g.elements;
    out.dtype = g.dtype;
    out.layer = layers - 1 - g.layer;
    out.registration = static_cast<int>(job.gradients.size() - 1 - i);
    out.ready_s = seconds(g.ready_ns);
    if (g.rows > 0) out.rows = g.rows;
    out.turn = g.turn;
    w.gradients.push_back(out);
  }
  w.backward_s = w.gradients.back().ready_s;
}

/// The gradient exchanges of one step of one rank.
struct Buckets {
  std::vector<std::pair<std::int64_t, DType>> sizes;  // bytes, as sent
  std::vector<double> ready_s;                        // when each was full, or began
};

/// The mark that ends with the update; the step itself if that is one.
const StepSpan& last_mark(const StepSpan& step) {
  return step.marks.empty() ? step : step.marks.back();
}

/// By step of the rank. Times count from the begin of the mark that ends with the update, or from
/// the first bucket if that was ready earlier.
std::map<std::int32_t, Buckets> buckets_of(const RankActivity& r,
                                           const std::vector<SentFor>& purposes) {
  std::map<std::int32_t, Buckets> steps;
  std::map<std::int32_t, std::int64_t> begin;
  for (std::size_t i = 0; i < r.communications.size(); ++i) {
    const Communication& c = r.communications[i];
    if (c.step < 0 || !c.gradients || !carries_gradients(c.op) || c.bytes < 4) continue;
    if (purposes[i] != SentFor::gradients) continue;
    const StepSpan& step = last_mark(r.steps[to_index(c.step)]);
    const std::int64_t start = step.on_device.value_or(step.span).start_ns;
    const std::int64_t ready = asked_ns(c);
    const auto [at, fresh] = begin.try_emplace(c.step, std::min(start, ready));
    steps[c.step].sizes.emplace_back(c.bytes, c.dtype.value_or(DType::f32));
    steps[c.step].ready_s.push_back(seconds(std::max<std::int64_t>(0, ready - at->second)));
  }
  return steps;
}

/// Buckets in place of gradients: an exchange starts when its bucket is full. Steps that exchange
/// the most common list of sizes count. Ready times are medians over the steps of a rank, typical
/// of ranks, and never decrease. False: no step exchanges gradients of known size.
bool from_buckets(const Job& job, const std::vector<std::vector<SentFor>>& purposes,
                  doc::Workload& w) {
  std::vector<std::map<std::int32_t, Buckets>> all;  // by rank
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    all.push_back(buckets_of(job.ranks[r], purposes[r]));
  std::map<decltype(Buckets::sizes), int> counts;
  for (const auto& steps : all)
    for (const auto& [step, buckets] : steps) ++counts[buckets.sizes];
  if (counts.empty()) return false;
  const decltype(Buckets::sizes) sizes = most_common(counts);
  std::vector<std::vector<double>> medians(sizes.size());  // by bucket, of each rank
  for (const auto& steps : all) {
    std::vector<std::vector<double>> times(sizes.size());
    for (const auto& [step, buckets] : steps)
      for (std::size_t i = 0; i < sizes.size() && buckets.sizes == sizes; ++i)
        times[i].push_back(buckets.ready_s[i]);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (!times[i].empty()) medians[i].push_back(median(times[i]));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto& [bytes, dtype] = sizes[i];
    doc::Gradient g;
    g.name = fmt::format("bucket{}", i);
    g.dtype = dtype;
    g.elements = bytes / size_of(dtype);
    g.registration = static_cast<int>(sizes.size() - 1 - i);
    g.ready_s = std::max(w.gradients.empty() ? 0 : w.gradients.back().ready_s,
                         typical_of_ranks(medians[i]));
    w.gradients.push_back(g);
  }
  std::vector<double> compute;  // of each rank
  for (const RankActivity& r : job.ranks) {
    const SpanSet busy = union_of(r.compute);
    std::vector<double> steps;
    const std::vector<Span> windows = windows_of_steps(r);
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const StepSpan& last = last_mark(r.steps[i]);
      const std::int64_t start = last.on_device.value_or(last.span).start_ns;
      steps.push_back(
          seconds_of(clipped(busy, {std::max(start, windows[i].start_ns), windows[i].end_ns})));
    }
    if (!steps.empty()) compute.push_back(median(steps));
  }
  w.backward_s =
      std::max(w.gradients.back().ready_s, compute.empty() ? 0 : typical_of_ranks(compute));
  return true;
}

/// Whether a Timeline states a strategy that sends other bytes than the gradients': a compressor,
/// or another type on the wire. Then sizes of exchanges are not sizes of gradients.
bool sends_other_bytes(const Job& job) {
  if (job.strategy.empty()) return false;
  const doc::Strategy strategy = doc::parse_strategy(job.strategy);
  return !strategy.extras.empty() || strategy.exchange.find("wire") != nullptr;
}

/// Notes parameters without a gradient in the recording. They were unused, and DDP sends them all
/// the same. The sign is that steps exchange 1 % more elements than the recorded gradients have.
void say_unrecorded(const Job& job, const std::vector<std::vector<SentFor>>& purposes,
                    const doc::Workload& w, std::vector<std::string>& notes) {
  constexpr double kOfNorms = 0.01;  // sums of norm layers over the ranks are below
  if (job.accumulation.passes > 1) return;
  std::vector<double> sent;  // elements, by rank and step
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (const auto& [step, buckets] : buckets_of(job.ranks[r], purposes[r])) {
      std::int64_t elements = 0;
      for (const auto& [bytes, dtype] : buckets.sizes) elements += bytes / size_of(dtype);
      sent.push_back(static_cast<double>(elements));
    }
  std::int64_t recorded = 0;
  for (const doc::Gradient& g : w.gradients) recorded += g.elements;
  if (sent.empty() || recorded == 0) return;
  const double more = median(sent) / static_cast<double>(recorded) - 1;
  if (more > kOfNorms)
    notes.push_back(fmt::format(
        "a step exchanges {:.3g} % more elements than its recorded gradients have. They belong to "
        "unused parameters, which DDP sends too; predictions leave them out",
        100 * more));
}

/// Lets times of buckets count from the first kernel. A copy of a step may run long before it, as
/// prefetching does, and the times then count from the copy. The sign is a backward pass that is
/// longer than the step: it is cut to the step, and ready times move with it.
void begin_with_computation(double step_s, doc::Workload& w) {
  const double before_s = w.backward_s - step_s;
  if (before_s <= 0) return;
  for (doc::Gradient& g : w.gradients) g.ready_s = std::max(0.0, g.ready_s - before_s);
  w.backward_s = step_s;
}

void set_step(const AloneSteps& alone, doc::Workload& w, std::vector<std::string>& notes) {
  if (!alone.time) return;
  const doc::Bounded& step_s = alone.time->step_s;
  if (w.layers.empty()) begin_with_computation(step_s.value, w);
  w.step_s = std::max(step_s.value, w.backward_s);
  if (step_s.has_interval())
    w.step_low_s = std::min(*step_s.low, *w.step_s),
    w.step_high_s = std::max(*step_s.high, *w.step_s);
  w.step_origin = alone.time->origin;
  if (alone.forward_s) w.forward_s = std::min(*alone.forward_s, *w.step_s - w.backward_s);
  w.accumulation = alone.job.accumulation.passes;
  notes.push_back(doc::step_in_words(w));
  notes.insert(notes.end(), alone.notes.begin(), alone.notes.end());
}

/// Broadcasts that come before the update, of a mean step of the first rank.
std::int64_t buffer_bytes_of(const Job& job, const std::vector<std::vector<SentFor>>& purposes) {
  if (job.ranks.empty() || job.ranks.front().steps.empty()) return 0;
  const RankActivity& first = job.ranks.front();
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < first.communications.size(); ++i) {
    const Communication& c = first.communications[i];
    if (c.op == CommOp::broadcast && c.bytes > 0 && c.step >= 0 &&
        purposes.front()[i] != SentFor::update && (job.strategy.empty() || !c.gradients))
      bytes += c.bytes;
  }
  return bytes / static_cast<std::int64_t>(first.steps.size());
}

/// Of a job without gradients and without exchanges of known size.
std::string why_none_can_be_made(const Job& job) {
  if (job.computation_unknown)
    return "it records communication alone and no computation, so no Workload can be made; give "
           "traces of PyTorch's profiler of the same job";
  if (job.runs_graphs)
    return "its steps run in CUDA graphs, which record neither gradients nor the sizes of "
           "exchanges, so no Workload can be made; record some steps without graphs, with "
           "record_shapes=True and a step schedule";
  return "expected AccumulateGrad records with shapes, or gradient exchanges of known size inside "
         "a step, found neither, so no Workload can be made; record with record_shapes=True and a "
         "step schedule";
}

}  // namespace

doc::Workload workload_of(Job job, const std::string& name, std::vector<std::string>& notes,
                          const std::optional<Job>& alone_recording) {
  if (!job.sharding.empty())
    throw InputError(
        name, fmt::format("a job whose model is split over ranks: {}. A Workload is what one rank "
                          "computes of a whole model, and whatif and advise plan exchanges of its "
                          "whole gradients; linerate explain says where this job's time goes",
                          job.sharding));
  if (const int turns = turns_of(job); turns > 1) {
    if (job.gradients.empty())
      throw InputError(
          name, fmt::format("a step trains {} models in turn, or one model so many times, each "
                            "with an update of its own. The trace lacks the sizes of gradients, so "
                            "it is not known which of them an exchange carries; record with "
                            "record_shapes=True, or mark a step of the profiler for each",
                            turns));
    notes.push_back(
        fmt::format("a step trains {} models in turn, or one model so many times, each with a "
                    "backward pass, exchanges and an update of its own. No bucket holds gradients "
                    "of two, and the next backward pass waits for the exchanges",
                    turns));
  }
  const AloneSteps alone = alone_recording ? alone_steps(job, *alone_recording) : alone_steps(job);
  job.one_rank = alone.time;
  const Breakdown b = break_down(job);
  notes.insert(notes.end(), b.notes.begin(), b.notes.end());
  doc::Workload w;
  w.name = name;
  w.source = fmt::format("trace {}", job.ranks.empty() ? name : job.ranks.front().source);
  const std::vector<std::vector<SentFor>> purposes = purposes_of(job);
  if (!alone.job.gradients.empty()) {
    from_records(alone.job, w);
    say_unknown_factors(alone.job, notes);
    say_unrecorded(job, purposes, w, notes);
  } else if (sends_other_bytes(job)) {
    throw InputError(
        name, fmt::format(
                  "a Timeline under {} without the sizes of the gradients, and what it sends has "
                  "other sizes, so no Workload can be made. Give the Workload that it was planned "
                  "for, or the Workload that linerate train --record writes next to a Timeline",
                  job.strategy));
  } else if (from_buckets(alone.job, purposes, w)) {
    notes.push_back(
        job.strategy.empty()
            ? "no AccumulateGrad records with shapes (record_shapes was off), so each gradient "
              "exchange counts as one gradient, ready when the exchange starts. powersgd, acpsgd "
              "and kfac need the parameters' shapes; record with record_shapes=True"
            : "the Timeline has no sizes of gradients, so each exchange counts as one, ready when "
              "the exchange starts. The Workload that it was planned for has all of them, as has "
              "the Workload that linerate train --record writes next to a Timeline");
  } else {
    throw InputError(name, why_none_can_be_made(job));
  }
  set_step(alone, w, notes);
  if (b.buckets) w.current = b.buckets->strategy;
  const int ranks = std::max(b.world_size, static_cast<int>(job.ranks.size()));
  if (b.step_s && alone.time && ranks > 1) {
    w.recorded = doc::RecordedStep{.step_s = *b.step_s, .ranks = ranks, .on_cpu = job.cpu_device};
    if (const auto most = share_for(b.path.ceilings, Remedy::infinitely_fast_network))
      w.recorded->least_s = *b.step_s * (1 - *most);
  }
  if (w.recorded && w.current.empty())
    notes.push_back(fmt::format(
        "the Workload has no current strategy, because no strategy of linerate's exchanges as this "
        "job does. whatif and advise begin from its step as recorded, {} on {} ranks",
        format_time(w.recorded->step_s), ranks));
  w.buffer_bytes = buffer_bytes_of(job, purposes);
  w.other_collectives = other_collectives_of(
      job, purposes, alone_recording ? alone_steps(job).job : alone.job, w, notes);
  return w;
}

// Steps of 45, 46, 44 and 80 ms on rank 0, and 62 ms each on rank 1. The median of rank 0 is 45.5
// ms, so its slow step does not count. Rank 1 is more than 10 % above it, so it is not typical: T_1
// is 45.5 ms. Notes name the slow step and the slow rank.
//
// The interval of a median needs no assumption on how steps scatter. Of n steps, the order
// statistics around the middle contain the true median in 90 % of cases.

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
  if (!std::ranges::all_of(steps, cut)) std::erase_if(steps, cut);
  return steps;
}

/// A rank without its communication.
class TimeAlone {
 public:
  TimeAlone(const RankActivity& r, bool on_device) : rank_(r), compute_(at_work(r, on_device)) {
    const SpanSet communication = communication_times(r);
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
