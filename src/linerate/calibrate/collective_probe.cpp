// How to spend a budget of seconds on sizes. find_sizes() climbs from the smallest size while a
// call fits the budget. The fewest rounds of all sizes follow. Then the fits say which sizes are
// missing (size_search.hpp), and the rest of the time goes to repetitions.
//
// All ranks must decide alike, or they would wait for different collectives. Decisions use times
// that were agreed over the ranks (time()), and shuffles come from one seed.
#include "linerate/calibrate/collective_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "linerate/calibrate/size_search.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"
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

}  // namespace linerate::calibrate
