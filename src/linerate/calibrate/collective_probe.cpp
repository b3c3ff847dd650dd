// How to spend a budget of seconds on sizes. find_sizes() climbs from the smallest size while a
// call fits the budget. The fewest rounds of all sizes follow. Then the fits say which sizes are
// missing (collective_probe.hpp), and the rest of the time goes to repetitions.
//
// All ranks must decide alike, or they would wait for different collectives. Decisions use times
// that were agreed over the ranks (time()), and shuffles come from one seed.
#include "linerate/calibrate/collective_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/calibrate/fit.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

/// How one operation is probed: `step` from size to size, and the share of the budget that one call
/// of the largest may take. All-reduce and its halves carry gradients, a broadcast carries buffers.
struct Kind {
  Collective collective;
  int step;
  double largest_share;
};
constexpr Kind kKinds[] = {{Collective::all_reduce, 2, 1.0 / 24},
                           {Collective::reduce_scatter, 4, 1.0 / 40},
                           {Collective::all_gather, 4, 1.0 / 40},
                           {Collective::broadcast, 4, 1.0 / 80}};

constexpr std::size_t kFewestSizesOfFit = 3;  // of a fit
constexpr std::size_t kMostAdded = 24;        // to one operation
constexpr std::uint64_t kShuffleSeed = 4;

class Prober {
 public:
  Prober(comm::Communicator& communicator, CallTimer& timer, const CollectiveProbeOptions& options)
      : communicator_(communicator), timer_(timer), options_(options) {
    for (const Kind& kind : kKinds) tables_.push_back({kind.collective});
  }

  CollectiveProbe run() {
    find_sizes();
    CollectiveProbe probe;
    for (double round_s = 0; probe.rounds < options_.most_rounds; ++probe.rounds) {
      // A round that would end more than half of itself too late is not begun.
      if (probe.rounds >= options_.fewest_rounds &&
          elapsed_ + round_s / 2 >= options_.budget.count())
        break;
      const double before = elapsed_;
      measure(due_sizes());
      round_s = elapsed_ - before;
      if (probe.rounds + 1 >= options_.fewest_rounds) add_sizes();
    }
    probe.added = added_;
    probe.tables = fitting_tables();
    probe.noise_floor = noise_floor();
    return probe;
  }

 private:
  struct Table {
    Collective kind;
    std::vector<ProbedSize> sizes = {};  // ascending
    std::int64_t climbed_to = 0;         // before rounding to whole blocks
    std::size_t added = 0;
  };
  /// A size by its place.
  struct Place {
    std::size_t table, size;
  };

  static double call_s(const ProbedSize& size) {
    return size.seconds.empty() ? size.expected_s : median(size.seconds);
  }
  static double run_s(const ProbedSize& size) {
    return call_s(size) * calls_in_a_run(call_s(size));
  }
  std::int64_t whole(std::int64_t bytes) const { return whole_blocks(bytes, communicator_.size()); }
  ProbedSize& at(const Place& p) { return tables_[p.table].sizes[p.size]; }

  /// Seconds of a call of each run, the same on every rank. The root of a broadcast is done when
  /// the transport has its bytes: there the last rank counts.
  std::vector<double> time(std::span<const CallRun> train) {
    std::vector<double> seconds = timer_.time(train), last = seconds;
    mean_over_ranks(communicator_, seconds);
    elapsed_ = timer_.elapsed();
    last.push_back(elapsed_);
    communicator_.all_reduce(comm::buffer(last), comm::Reduce::max, "probe times")->wait();
    elapsed_ = last.back();
    for (std::size_t i = 0; i < train.size(); ++i)
      if (train[i].call.kind == Collective::broadcast) seconds[i] = last[i];
    if (options_.progress) options_.progress(std::min(1.0, elapsed_ / options_.budget.count()));
    return seconds;
  }

  /// Would a call of `bytes` fit the budget? Foreseen from the largest size so far.
  bool fits(std::size_t t, std::int64_t bytes) const {
    const ProbedSize& last = tables_[t].sizes.back();
    const double foreseen =
        last.expected_s * static_cast<double>(bytes) / static_cast<double>(last.bytes);
    return bytes <= whole(options_.largest.value) &&
           foreseen <= kKinds[t].largest_share * options_.budget.count();
  }
  /// Whether a table is measured at `bytes`, a doubling of the smallest size. A table climbs by its
  /// step. If its step no longer fits the budget, a doubling may. In any case it climbs to the
  /// fewest sizes of a fit.
  bool is_due(std::size_t t, std::int64_t bytes) const {
    const Table& table = tables_[t];
    const std::int64_t step = table.climbed_to * kKinds[t].step;
    if (table.sizes.empty()) return true;
    if (table.sizes.back().bytes == whole(bytes)) return false;
    const bool enough = table.sizes.size() >= kFewestSizesOfFit;
    return (bytes >= step || (enough && !fits(t, whole(step)))) &&
           (!enough || fits(t, whole(bytes)));
  }

  /// One train a doubling, with one call of each operation that is due.
  void find_sizes() {
    for (std::int64_t bytes = options_.smallest.value; bytes <= options_.largest.value;
         bytes *= 2) {
      std::vector<CallRun> train;
      std::vector<Table*> of;
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        if (!is_due(t, bytes)) continue;
        train.push_back({{tables_[t].kind, whole(bytes)}, 1});
        of.push_back(&tables_[t]);
      }
      if (train.empty()) continue;
      const std::vector<double> seconds = time(train);
      for (std::size_t i = 0; i < train.size(); ++i) {
        ProbedSize& size = of[i]->sizes.emplace_back(ProbedSize{train[i].call.bytes, seconds[i]});
        // A call that is alone in a round, too, has just been measured.
        if (calls_in_a_run(seconds[i]) == 1) size.seconds = {seconds[i]};
        of[i]->climbed_to = bytes;
      }
    }
  }

  std::vector<Place> all_sizes() const {
    std::vector<Place> places;
    for (std::size_t t = 0; t < tables_.size(); ++t)
      for (std::size_t s = 0; s < tables_[t].sizes.size(); ++s) places.push_back({t, s});
    return places;
  }

  /// Sizes for the next round: those with too few times, and those that took less than their share
  /// of the time so far. So each size gets the same time. Long calls repeat well and are measured
  /// less often than short ones, which a busy machine scatters.
  std::vector<Place> due_sizes() {
    std::vector<Place> places = all_sizes();
    const double share = elapsed_ / static_cast<double>(places.size());
    std::erase_if(places, [&](const Place& p) {
      const std::size_t times = at(p).seconds.size();
      return times >= to_index(options_.fewest_rounds) &&
             run_s(at(p)) * static_cast<double>(times) > share;
    });
    return places.empty() ? all_sizes() : places;
  }

  /// One train of these sizes, shuffled alike on every rank; each gets one more time.
  void measure(std::vector<Place> places) {
    const std::uint64_t key = random_key(kShuffleSeed, trains_++);
    for (std::size_t i = places.size(); i > 1; --i)
      std::swap(places[i - 1], places[random_below(key, i, i)]);
    std::vector<CallRun> train;
    for (const Place& p : places)
      train.push_back({{tables_[p.table].kind, at(p).bytes}, calls_in_a_run(call_s(at(p)))});
    const std::vector<double> seconds = time(train);
    for (std::size_t i = 0; i < places.size(); ++i) at(places[i]).seconds.push_back(seconds[i]);
  }

  /// Sizes where the fits need them, one an operation at a time, while half of the time that is
  /// left now lasts.
  void add_sizes() {
    const double until = (elapsed_ + options_.budget.count()) / 2;
    for (;;) {
      std::vector<std::pair<std::size_t, ProbedSize>> wanted;
      double cost_s = 0;
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        const std::optional<ProbedSize> next = next_of(tables_[t]);
        if (!next) continue;
        wanted.emplace_back(t, *next);
        cost_s += options_.fewest_rounds * run_s(*next);
      }
      if (wanted.empty() || elapsed_ + cost_s > until) return;
      std::vector<Place> places;
      for (auto& [t, size] : wanted) places.push_back({t, insert(tables_[t], std::move(size))});
      for (int round = 0; round < options_.fewest_rounds; ++round) measure(places);
      added_ += static_cast<int>(places.size());
    }
  }

  std::optional<ProbedSize> next_of(const Table& table) const {
    if (table.sizes.size() < kFewestSizesOfFit || table.added >= kMostAdded) return std::nullopt;
    const std::optional<std::int64_t> next =
        next_size(table.kind, communicator_.size(), table.sizes);
    if (!next) return std::nullopt;
    const std::int64_t bytes = whole(*next);
    const auto above = first_from(table, bytes);
    if (above->bytes == bytes) return std::nullopt;  // blocks of many ranks are coarse
    return ProbedSize{bytes, call_s(*above)};
  }

  static std::vector<ProbedSize>::const_iterator first_from(const Table& table,
                                                            std::int64_t bytes) {
    return std::find_if(table.sizes.begin(), table.sizes.end(),
                        [&](const ProbedSize& s) { return s.bytes >= bytes; });
  }

  static std::size_t insert(Table& table, ProbedSize size) {
    ++table.added;
    const auto at = table.sizes.insert(first_from(table, size.bytes), std::move(size));
    return to_index(at - table.sizes.begin());
  }

  std::vector<doc::CollectiveCost> fitting_tables() const {
    std::vector<doc::CollectiveCost> result;
    for (const Table& table : tables_) {
      doc::CollectiveCost& cost = result.emplace_back();
      cost.collective = table.kind;
      cost.ranks = communicator_.size();
      cost.in_place = table.kind == Collective::all_reduce || table.kind == Collective::broadcast;
      cost.source =
          fmt::format("probe over {}, {} ranks", communicator_.transport(), communicator_.size());
      for (const ProbedSize& size : table.sizes) cost.samples.push_back(sample_of(size));
    }
    return result;
  }

  double noise_floor() const {
    std::vector<double> differences;
    for (const Table& table : tables_) {
      for (const ProbedSize& size : table.sizes) {
        std::vector<double> halves[2];
        for (std::size_t i = 0; i < size.seconds.size(); ++i)
          halves[i % 2].push_back(size.seconds[i]);
        if (!halves[1].empty())
          differences.push_back(std::abs(median(halves[0]) / median(halves[1]) - 1));
      }
    }
    return differences.empty() ? 0 : quantile(differences, 0.9);
  }

  comm::Communicator& communicator_;
  CallTimer& timer_;
  CollectiveProbeOptions options_;
  std::vector<Table> tables_;  // in the order of kKinds
  double elapsed_ = 0;
  std::uint64_t trains_ = 0;
  int added_ = 0;
};

// All calls of a train are submitted at once, and their ends are read afterwards. So nothing on the
// caller's side lies between two calls, and a short call's time is that of the transport.
// collective_probe.cpp and probe.cpp measure with this; torch_adapter derives a series for
// devices.

constexpr std::int64_t kElement = sizeof(float);
// Several times the buckets in use: 0.5 ms of the rate in tools/lab, 1 to 2 ms by tc's manual.
constexpr std::int64_t kEmptyingBytes = 256 << 10;

void require_timed(Collective kind) {
  switch (kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::broadcast:
      return;
    default:
      throw UsageError(
          fmt::format("probe: {} is not timed; expected all-reduce, reduce-scatter, all-gather, "
                      "all-to-all or broadcast",
                      name_of(kind)));
  }
}

/// Calls at the head of a run that still feel the calls before.
int untimed(const CallRun& run) { return run.calls > 1 ? 2 : 0; }

/// The mean of the middle half. Not of all: a sender may stall for many calls' time. Not the
/// median: short calls overlap, and may alternate between quick and slow.
double middle_mean(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t quarter = seconds.size() / 4;
  return mean(std::span(seconds).subspan(quarter, seconds.size() - 2 * quarter));
}

// Where is a fit worst? Leave-one-out errors say it: a size that the others cannot foresee lies at
// a bend or a jump. Another size next to it locates that. If the medians themselves are in doubt,
// the error may be noise, and repetitions help more than sizes.

constexpr double kNarrowGap = 1.1;  // ratio of two neighbouring sizes

/// Two standard errors of the median, relative: a normal's median has 1.25 sigma / sqrt(n), and its
/// 10th to 90th percentile is 2.56 sigma.
double doubt(const doc::CostSample& sample, std::size_t times) {
  return (sample.high_s - sample.low_s) / sample.seconds / std::sqrt(static_cast<double>(times));
}

struct Gap {
  double from = 1, to = 1;
  double ratio() const { return to / from; }
};

}  // namespace

CollectiveProbe probe_collectives(comm::Communicator& communicator, CallTimer& timer,
                                  const CollectiveProbeOptions& options) {
  return Prober(communicator, timer, options).run();
}

CollectiveProbe probe_collectives(comm::Communicator& communicator,
                                  const CollectiveProbeOptions& options) {
  CallTrain train(communicator, options.largest.value);
  return probe_collectives(communicator, train, options);
}

int calls_in_a_run(double seconds_per_call) {
  constexpr double kLongCall = 0.010, kRun = 0.006, kMost = 16;
  if (seconds_per_call > kLongCall) return 1;
  return static_cast<int>(std::clamp(std::ceil(kRun / seconds_per_call), 2.0, kMost));
}

std::int64_t whole_blocks(std::int64_t bytes, int ranks) {
  const std::int64_t block = kElement * ranks;
  return (bytes + block - 1) / block * block;
}

void mean_over_ranks(comm::Communicator& communicator, std::vector<double>& values) {
  communicator.all_reduce(comm::buffer(values), comm::Reduce::sum, "probe times")->wait();
  for (double& v : values) v /= communicator.size();
}

CallSeries::CallSeries(std::int64_t largest_bytes)
    : largest_bytes_(largest_bytes), start_ns_(steady_ns()) {}

double CallSeries::elapsed() const { return static_cast<double>(steady_ns() - start_ns_) * 1e-9; }

/// `added` counts everything that was submitted, so it is the index of the next end. A timed call
/// then lasts from the end with the index before its own to its own.
std::vector<double> CallSeries::time(std::span<const CallRun> runs) {
  for (const CallRun& run : runs) require_timed(run.call.kind);
  const Call emptying{Collective::all_reduce, std::min(kEmptyingBytes, largest_bytes_)};
  meet();
  std::size_t added = 0;
  std::vector<std::vector<std::size_t>> timed(runs.size());  // by run: which of those added
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const CallRun& run = runs[r];
    add(emptying), ++added;
    for (int i = -untimed(run); i < run.calls; ++i) {
      if (run.call.kind == Collective::broadcast) add_barrier(), ++added;
      if (i >= 0) timed[r].push_back(added);
      add(run.call), ++added;
    }
  }
  const std::vector<double> ends = ends_ns();
  std::vector<double> middles;
  for (const std::vector<std::size_t>& run : timed) {
    std::vector<double> seconds;
    for (const std::size_t i : run) seconds.push_back((ends[i] - ends[i - 1]) * 1e-9);
    middles.push_back(middle_mean(std::move(seconds)));
  }
  return middles;
}

CallTrain::CallTrain(comm::Communicator& communicator, std::int64_t largest_bytes)
    : CallSeries(whole_blocks(largest_bytes, communicator.size())), communicator_(communicator) {
  const std::int64_t floats = whole_blocks(largest_bytes, communicator.size()) / kElement;
  whole_.assign(to_index(floats), 0.0f);
  part_.assign(to_index(floats / communicator.size()), 0.0f);
}

void CallTrain::meet() {
  works_.clear();
  communicator_.barrier("probe")->wait();
}

std::vector<double> CallTrain::ends_ns() {
  for (const comm::WorkPtr& work : works_) work->wait();
  std::vector<double> ends;
  for (const comm::WorkPtr& work : works_)
    ends.push_back(static_cast<double>(work->times().end_ns));
  return ends;
}

comm::WorkPtr CallTrain::submit(const Call& call) {
  const Elements whole{call.bytes / kElement}, part{whole.value / communicator_.size()};
  const comm::Buffer all{whole_.data(), whole, DType::f32}, own{part_.data(), part, DType::f32};
  switch (call.kind) {
    case Collective::all_reduce:
      return communicator_.all_reduce(all, comm::Reduce::sum, "probe");
    case Collective::reduce_scatter:
      return communicator_.reduce_scatter(all, own, comm::Reduce::sum, "probe");
    case Collective::all_gather:
      return communicator_.all_gather(own, all, "probe");
    case Collective::all_to_all:
      exchanged_.resize(whole_.size());
      return communicator_.all_to_all(all, {exchanged_.data(), whole, DType::f32}, "probe");
    default:
      return communicator_.broadcast(all, 0, "probe");
  }
}

doc::CostSample sample_of(const ProbedSize& size) {
  return {static_cast<double>(size.bytes), median(size.seconds), quantile(size.seconds, 0.1),
          quantile(size.seconds, 0.9)};
}

std::optional<std::int64_t> next_size(Collective kind, int ranks,
                                      const std::vector<ProbedSize>& sizes) {
  doc::CollectiveCost table;
  table.collective = kind;
  table.ranks = ranks;
  table.source = "probe";
  std::vector<double> doubts;
  for (const ProbedSize& size : sizes) {
    table.samples.push_back(sample_of(size));
    doubts.push_back(doubt(table.samples.back(), size.seconds.size()));
  }
  const auto gap = [&](std::size_t after) {
    return Gap{table.samples[after].bytes, table.samples[after + 1].bytes};
  };
  double worst = 0;
  std::optional<std::int64_t> next;
  for (const HeldOutError& e : fit_with_errors(table, {}).errors) {
    const double error = std::abs(e.relative_error), i_doubt = doubts[e.sample];
    if (error <= worst || error <= kAllowedError) continue;
    if (error <= std::hypot(doubts[e.sample - 1], i_doubt, doubts[e.sample + 1])) continue;
    const Gap before = gap(e.sample - 1), after = gap(e.sample);
    const Gap& wider = before.ratio() > after.ratio() ? before : after;
    if (wider.ratio() < kNarrowGap) continue;
    worst = error;
    next = std::llround(std::sqrt(wider.from * wider.to));
  }
  return next;
}

}  // namespace linerate::calibrate
