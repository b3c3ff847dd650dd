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
#include <functional>
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
    layer.backward_s = in_seconds(l.backward_ns);
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
    out.ready_s = in_seconds(g.ready_ns);
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
    const std::int64_t start = last_mark(r.steps[to_index(c.step)]).time().start_ns;
    const std::int64_t ready = asked_ns(c);
    const auto [at, fresh] = begin.try_emplace(c.step, std::min(start, ready));
    steps[c.step].sizes.emplace_back(c.bytes, c.dtype.value_or(DType::f32));
    steps[c.step].ready_s.push_back(in_seconds(std::max<std::int64_t>(0, ready - at->second)));
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
      const std::int64_t start = last_mark(r.steps[i]).time().start_ns;
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

/// A rank that has steps, without its communication: each step, and medians over them. Steps that
/// the recording's end cut are left out, unless all were cut.
struct RankAlone {
  RankAlone(const RankActivity& r, bool on_device) : rank(r) {
    const SpanSet compute = at_work(r, on_device), communication = communication_times(r);
    exposed = doc::exposed_communication(communication, compute);
    const SpanSet host = union_of(r.host);
    const SpanSet busy =
        union_of(union_of(compute, communication), union_of(union_of(r.copies), host));
    const std::vector<Span> windows = windows_of_steps(r);
    for (std::size_t i = 0; i < r.steps.size(); ++i) {
      const StepSpan& step = r.steps[i];
      // Without the device the step's own length, as its mark has it; what it sent may be exposed
      // until the next one.
      const Span whole = step.time();
      const SpanSet pauses = difference_of({whole}, clipped(busy, whole));
      steps.push_back(
          {.label = step.label(),
           .cut = !step.is_whole(),
           .seconds = std::max(0.0, whole.seconds() - seconds_of(clipped(exposed, windows[i]))),
           .pause_s = pauses.empty() ? 0 : std::ranges::max(mapped(pauses, &Span::seconds))});
    }
    if (!std::ranges::all_of(steps, &OwnStep::cut))
      std::erase_if(steps, std::mem_fn(&OwnStep::cut));
    const std::vector<double> all_s = mapped(steps, &OwnStep::seconds);
    // The order statistics between which the median lies in 90 % of cases.
    const double around =
        std::min(0.5, kNormal90 / 2 / std::sqrt(static_cast<double>(all_s.size())));
    seconds = {median(all_s), quantile(all_s, 0.5 - around), quantile(all_s, 0.5 + around)};
    pause_s = median(mapped(steps, &OwnStep::pause_s));
    host_s = median(
        mapped(r.steps, [&host](const StepSpan& s) { return seconds_of(clipped(host, s.span)); }));
  }

  std::string name() const {
    return rank.rank < 0 ? rank.source : fmt::format("rank {}", rank.rank);
  }

  const RankActivity& rank;
  SpanSet exposed;
  std::vector<OwnStep> steps;
  doc::Bounded seconds;  // the median, and between what it lies
  double pause_s = 0;
  double host_s = 0;  // the host at work: not in what it waited for outside of operators
};

/// Steps of all ranks without communication, and what stands out among them.
class Finder {
 public:
  explicit Finder(const Job& job) : job_(job), updates_(job.updates) {
    for (const RankActivity& r : job.ranks)
      if (!r.steps.empty()) ranks_.emplace_back(r, !job.cpu_device);
  }

  TypicalSteps find() const {
    TypicalSteps found;
    if (ranks_.empty()) return found;
    const auto typical = [this](const auto& of_rank) {
      return typical_of_ranks(
          mapped(ranks_, [&](const RankAlone& r) { return of_rank(r) / updates_; }));
    };
    const double step_s = typical([](const RankAlone& r) { return r.seconds.value; });
    const double low_s = typical([](const RankAlone& r) { return *r.seconds.low; });
    const double high_s = typical([](const RankAlone& r) { return *r.seconds.high; });
    found.step_s = doc::Bounded{step_s, std::min(step_s, low_s), std::max(step_s, high_s)};
    found.host_s = typical([](const RankAlone& r) { return r.host_s; });
    std::vector<double> forwards;
    for (const RankAlone& r : ranks_) {
      found.steps += r.steps.size() * to_index(job_.updates);
      if (const auto forward = forward_of(r)) forwards.push_back(*forward);
    }
    if (!forwards.empty()) found.forward_s = typical_of_ranks(forwards);
    say_slow_ranks(step_s, found.notes);
    say_slow_steps(found.notes);
    say_pauses(step_s, found.notes);
    return found;
  }

 private:
  /// What comes before the last pass of a step.
  std::optional<double> forward_of(const RankAlone& r) const {
    const auto passes = exchanging_passes(job_, r.rank);
    if (passes.empty()) return std::nullopt;
    return median(mapped(passes, [&r](const BackwardPass* pass) {
      const std::int64_t start = r.rank.steps[to_index(pass->step)].time().start_ns;
      const Span before{start, std::max(start, pass->span.start_ns)};
      return std::max(0.0, before.seconds() - seconds_of(clipped(r.exposed, before)));
    }));
  }

  void say_slow_ranks(double step_s, std::vector<std::string>& notes) const {
    for (const RankAlone& r : ranks_) {
      const double more = r.seconds.value / updates_ - step_s;
      if (more <= kWorthSaying * step_s) continue;
      const bool pauses = r.pause_s > kWorthSaying * r.seconds.value;
      notes.push_back(fmt::format(
          "{} takes {} longer for itself in each step than T_1, which leaves it out: a "
          "sleep, a slow loader or a slower device{}",
          r.name(), format_time(more),
          pauses ? fmt::format("; nothing runs for {} of the step", format_time(r.pause_s)) : ""));
    }
  }

  void say_slow_steps(std::vector<std::string>& notes) const {
    for (const RankAlone& r : ranks_) {
      const double usual = r.seconds.value;
      std::vector<std::string> slow;
      for (const OwnStep& s : r.steps)
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
          r.name(), join(slow, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
    }
  }

  /// What repeats in every step belongs to T_1, however idle.
  void say_pauses(double step_s, std::vector<std::string>& notes) const {
    const double pause = typical_of_ranks(mapped(ranks_, &RankAlone::pause_s));
    if (pause > kWorthSaying * step_s * updates_)
      notes.push_back(
          fmt::format("T_1 includes a pause of {} that repeats in every {}, in which neither host "
                      "nor device does anything (a sleep, or waiting for data)",
                      format_time(pause),
                      job_.updates > 1 ? fmt::format("period of {} steps", job_.updates) : "step"));
  }

  const Job& job_;
  double updates_;
  std::vector<RankAlone> ranks_;
};

}  // namespace

TypicalSteps typical_steps(const Job& job) { return Finder(job).find(); }

}  // namespace linerate::trace
