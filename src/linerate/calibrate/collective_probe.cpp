#include "linerate/calibrate/collective_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

// One call of the largest size may take this share of the budget; the others' largest a quarter of
// it.
constexpr double kLargestShare = 1.0 / 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One operation at one size, with one value a round.
struct Case {
  Collective collective;
  std::int64_t bytes;
  std::vector<double> seconds = {};
};

/// The largest over ranks: the same decision everywhere.
double agreed_max(comm::Communicator& communicator, double value) {
  communicator.all_reduce({&value, {1}, DType::f64}, comm::Reduce::max, "agree")->wait();
  return value;
}

class Prober {
 public:
  Prober(comm::Communicator& communicator, const CollectiveProbeOptions& options)
      : communicator_(communicator), options_(options) {
    const auto n = static_cast<std::int64_t>(communicator.size());
    for (const Collective c : {Collective::all_reduce, Collective::reduce_scatter,
                               Collective::all_gather, Collective::broadcast}) {
      const int factor = c == Collective::all_reduce ? 2 : 4;
      // Whole blocks for every rank: sizes are rounded up to 4 n bytes.
      for (std::int64_t b = options.smallest.value; b <= options.largest.value; b *= factor)
        cases_.push_back({c, (b + 4 * n - 1) / (4 * n) * 4 * n});
    }
    const auto floats = static_cast<std::size_t>(options.largest.value / 4 + n);
    whole_.assign(floats, 0.0f);
    part_.assign(floats / static_cast<std::size_t>(n) + 1, 0.0f);
  }

  CollectiveProbe run() {
    const Clock::time_point start = Clock::now();
    warm_up();
    CollectiveProbe probe;
    for (double elapsed = 0; probe.rounds < options_.most_rounds; ++probe.rounds) {
      if (probe.rounds >= options_.fewest_rounds && elapsed >= options_.budget.value) break;
      for (Case& c : cases_) c.seconds.push_back(time(c));
      elapsed = agreed_max(communicator_, seconds_since(start));
      if (options_.progress) options_.progress(std::min(1.0, elapsed / options_.budget.value));
    }
    take_least_over_ranks();
    probe.tables = tables();
    probe.noise_floor = noise_floor();
    return probe;
  }

 private:
  double time(const Case& c) {
    communicator_.barrier("calibrate")->wait();
    const comm::WorkPtr work = submit(c);
    work->wait();
    const comm::WorkTimes t = work->times();
    return static_cast<double>(t.end_ns - t.start_ns) * 1e-9;
  }

  comm::WorkPtr submit(const Case& c) {
    const Elements whole{c.bytes / 4}, part{c.bytes / 4 / communicator_.size()};
    switch (c.collective) {
      case Collective::reduce_scatter:
        return communicator_.reduce_scatter({whole_.data(), whole, DType::f32},
                                            {part_.data(), part, DType::f32}, comm::Reduce::sum,
                                            "calibrate");
      case Collective::all_gather:
        return communicator_.all_gather({part_.data(), part, DType::f32},
                                        {whole_.data(), whole, DType::f32}, "calibrate");
      case Collective::broadcast:
        return communicator_.broadcast({whole_.data(), whole, DType::f32}, 0, "calibrate");
      default:
        return communicator_.all_reduce({whole_.data(), whole, DType::f32}, comm::Reduce::sum,
                                        "calibrate");
    }
  }

  /// Runs every case once, ascending, and drops the sizes of an operation from the first that takes
  /// too long.
  void warm_up() {
    std::vector<Case> kept;
    Collective current = Collective::barrier;
    bool too_long = false;
    for (const Case& c : cases_) {
      if (c.collective != current) current = c.collective, too_long = false;
      if (too_long) continue;
      const double share =
          c.collective == Collective::all_reduce ? kLargestShare : kLargestShare / 4;
      too_long = agreed_max(communicator_, time(c)) > share * options_.budget.value;
      // The size that was too long is kept out, unless the operation would be left without a fit
      // (three sizes).
      const auto same = std::count_if(kept.begin(), kept.end(),
                                      [&](const Case& k) { return k.collective == c.collective; });
      if (!too_long || same < 3) kept.push_back(c), too_long = too_long && same >= 2;
    }
    cases_ = std::move(kept);
  }

  void take_least_over_ranks() {
    std::vector<double> all;
    for (const Case& c : cases_) all.insert(all.end(), c.seconds.begin(), c.seconds.end());
    communicator_
        .all_reduce({all.data(), {static_cast<std::int64_t>(all.size())}, DType::f64},
                    comm::Reduce::min, "times")
        ->wait();
    auto next = all.begin();
    for (Case& c : cases_)
      for (double& s : c.seconds) s = *next++;
  }

  std::vector<doc::CollectiveCost> tables() const {
    std::vector<doc::CollectiveCost> tables;
    for (const Case& c : cases_) {
      if (tables.empty() || tables.back().collective != c.collective) {
        doc::CollectiveCost& table = tables.emplace_back();
        table.collective = c.collective;
        table.ranks = communicator_.size();
        table.in_place =
            c.collective == Collective::all_reduce || c.collective == Collective::broadcast;
        table.source =
            fmt::format("probe over {}, {} ranks", communicator_.transport(), communicator_.size());
      }
      tables.back().samples.push_back({static_cast<double>(c.bytes), median(c.seconds),
                                       quantile(c.seconds, 0.1), quantile(c.seconds, 0.9)});
    }
    return tables;
  }

  double noise_floor() const {
    std::vector<double> differences;
    for (const Case& c : cases_) {
      std::vector<double> halves[2];
      for (std::size_t i = 0; i < c.seconds.size(); ++i) halves[i % 2].push_back(c.seconds[i]);
      if (!halves[1].empty())
        differences.push_back(std::abs(median(halves[0]) / median(halves[1]) - 1));
    }
    return differences.empty() ? 0 : quantile(differences, 0.9);
  }

  comm::Communicator& communicator_;
  CollectiveProbeOptions options_;
  std::vector<Case> cases_;
  std::vector<float> whole_, part_;
};

}  // namespace

CollectiveProbe probe_collectives(comm::Communicator& communicator,
                                  const CollectiveProbeOptions& options) {
  return Prober(communicator, options).run();
}

}  // namespace linerate::calibrate
