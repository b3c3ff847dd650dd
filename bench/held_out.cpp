// Does a calibrated Cluster foretell collectives at sizes that were not probed, and whole steps of
// them? Under mpirun or tools/lab, on as many ranks as the Cluster:
//   tools/lab run --ranks 2 --rate 1Gbit/s -- build/release/bench/held_out -c cluster.json
// noise: odd against even rounds of the same calls; an error below it means nothing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/fitted.hpp"
#include "linerate/doc/cluster.hpp"

using namespace linerate;

namespace {

struct Options {
  std::string cluster, idle = "0s", largest = "64MiB";
  int sizes = 24, rounds = 8, steps = 12;
  std::uint64_t seed = 1;
  bool each = false;
};

struct Case {
  calibrate::Call call;
  const doc::CollectiveCost* cost;
  double predicted() const {
    return cost::evaluate(*cost, static_cast<double>(call.bytes)).seconds;
  }
};

class HeldOut {
 public:
  HeldOut(comm::Communicator& world, const doc::Cluster& cluster, const Options& options)
      : world_(world), cluster_(cluster), options_(options), train_(world, largest()) {}

  void run() {
    if (world_.rank() == 0)
      fmt::print("{:<16}{:>6}{:>9}{:>9}{:>9}{:>9}{:>12}{:>10}\n", "collective", "sizes", "stated",
                 "bias", "mean", "worst", "at", "noise");
    for (const doc::CollectiveCost& cost : cluster_.collectives)
      if (cost.collective != Collective::broadcast) measure_sizes(cost);
    measure_steps();
  }

 private:
  std::int64_t largest() const {
    std::int64_t most = parse_size(options_.largest).value;
    for (const doc::CollectiveCost& c : cluster_.collectives)
      most = std::max(most, static_cast<std::int64_t>(c.samples.back().bytes));
    return most;
  }

  std::int64_t log_random(double from, double to, std::uint64_t stream, std::uint64_t i) const {
    const double u = random_unit(random_key(options_.seed, stream), i);
    return calibrate::whole_blocks(std::llround(from * std::pow(to / from, u)), world_.size());
  }

  /// Calls in runs as they are probed, or each after a pause.
  std::vector<double> time(const std::vector<Case>& calls) {
    const double idle = parse_time(options_.idle).value;
    std::vector<double> seconds;
    if (idle == 0) {
      std::vector<calibrate::CallRun> runs;
      for (const Case& c : calls)
        runs.push_back({c.call, calibrate::calls_in_a_run(c.predicted())});
      seconds = train_.time(runs);
    }
    for (std::size_t i = 0; idle > 0 && i < calls.size(); ++i) {
      pause(idle);
      const comm::WorkPtr work = train_.submit(calls[i].call);
      work->wait();
      seconds.push_back(static_cast<double>(work->times().end_ns - work->times().start_ns) * 1e-9);
    }
    calibrate::mean_over_ranks(world_, seconds);
    return seconds;
  }

  void pause(double seconds) {
    world_.barrier("pause")->wait();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  void measure_sizes(const doc::CollectiveCost& cost) {
    std::vector<Case> cases;
    for (int i = 0; i < options_.sizes; ++i)
      cases.push_back(
          {{cost.collective,
            log_random(cost.samples.front().bytes, cost.samples.back().bytes,
                       static_cast<std::uint64_t>(cost.collective), static_cast<std::uint64_t>(i))},
           &cost});
    std::vector<std::vector<double>> times(cases.size());
    for (int round = 0; round < options_.rounds; ++round) {
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < cases.size(); ++i) order.push_back(i);
      const std::uint64_t key = random_key(options_.seed + 1, static_cast<std::uint64_t>(round));
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[random_below(key, i, i)]);
      std::vector<Case> calls;
      for (const std::size_t i : order) calls.push_back(cases[i]);
      const std::vector<double> seconds = time(calls);
      for (std::size_t k = 0; k < order.size(); ++k) times[order[k]].push_back(seconds[k]);
    }
    report_sizes(cost, cases, times);
  }

  void report_sizes(const doc::CollectiveCost& cost, const std::vector<Case>& cases,
                    const std::vector<std::vector<double>>& times) const {
    if (world_.rank() != 0) return;
    std::vector<double> errors, noise;
    double bias = 0, worst_at = 0, worst = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double measured = median(times[i]), e = cases[i].predicted() / measured - 1;
      std::vector<double> halves[2];
      for (std::size_t k = 0; k < times[i].size(); ++k) halves[k % 2].push_back(times[i][k]);
      noise.push_back(std::abs(median(halves[0]) / median(halves[1]) - 1));
      errors.push_back(std::abs(e));
      bias += e / static_cast<double>(cases.size());
      if (std::abs(e) > worst)
        worst = std::abs(e), worst_at = static_cast<double>(cases[i].call.bytes);
      if (options_.each)
        fmt::print("  {:>12} measured {:>10} ({} .. {}) predicted {:>10}  {:+.1f} %\n",
                   cases[i].call.bytes, format_time(measured), format_time(quantile(times[i], 0.1)),
                   format_time(quantile(times[i], 0.9)), format_time(cases[i].predicted()),
                   100 * e);
    }
    fmt::print("{:<16}{:>6}{:>8.2f}%{:>+8.2f}%{:>8.2f}%{:>8.2f}%{:>12}{:>9.2f}%\n",
               name_of(cost.collective), cases.size(), 100 * cost.error_mean, 100 * bias,
               100 * mean(errors), 100 * worst, format_size(worst_at), 100 * mean(noise));
  }

  /// A step: collectives of random kinds and sizes back to back, after a pause; its communication
  /// takes the sum of their costs.
  void measure_steps() {
    std::vector<double> errors;
    double bias = 0, shortest = 1e9, longest = 0;
    for (int step = 0; step < options_.steps; ++step) {
      std::vector<calibrate::Call> calls;
      double predicted = 0;
      for (int i = 0; i < 12; ++i) {
        const auto& costs = cluster_.collectives;
        const auto stream = static_cast<std::uint64_t>(100 + step);
        const auto pick = static_cast<std::size_t>(
            random_below(random_key(options_.seed, stream), static_cast<std::uint64_t>(i), 3));
        const doc::CollectiveCost& cost = costs[pick];
        calls.push_back(
            {cost.collective, log_random(16384, cost.samples.back().bytes, stream + 1000,
                                         static_cast<std::uint64_t>(i))});
        predicted += cost::evaluate(cost, static_cast<double>(calls.back().bytes)).seconds;
      }
      std::vector<double> totals;
      for (int k = 0; k < 5; ++k) {
        pause(0.030);
        std::vector<comm::WorkPtr> works;
        for (const calibrate::Call& call : calls) works.push_back(train_.submit(call));
        for (const comm::WorkPtr& work : works) work->wait();
        totals.push_back(
            static_cast<double>(works.back()->times().end_ns - works.front()->times().start_ns) *
            1e-9);
      }
      calibrate::mean_over_ranks(world_, totals);
      const double measured = median(totals), e = predicted / measured - 1;
      shortest = std::min(shortest, measured), longest = std::max(longest, measured);
      errors.push_back(std::abs(e));
      bias += e / options_.steps;
    }
    if (world_.rank() == 0 && !errors.empty())
      fmt::print(
          "{} steps of 12 collectives, {} .. {}: bias {:+.2f} %, mean {:.2f} %, worst {:.2f} %\n",
          errors.size(), format_time(shortest), format_time(longest), 100 * bias,
          100 * mean(errors), 100 * quantile(errors, 1));
  }

  comm::Communicator& world_;
  const doc::Cluster& cluster_;
  const Options& options_;
  calibrate::CallTrain train_;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Errors of a calibrated Cluster at sizes that it was not fitted on.");
  app.add_option("-c,--cluster", o.cluster, "From linerate calibrate on the same ranks.")
      ->required();
  app.add_option("--sizes", o.sizes, "Log-random sizes of each collective.");
  app.add_option("--rounds", o.rounds, "Times each is measured; medians count.");
  app.add_option("--steps", o.steps, "Random steps of 12 collectives.");
  app.add_option("--idle", o.idle, "Pause before each call in place of a train, such as 5ms.");
  app.add_option("--seed", o.seed, "Of sizes and order.");
  app.add_flag("--each", o.each, "One line a size.");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto world = comm::make_world({});
    const doc::Cluster cluster = doc::load_cluster(o.cluster);
    HeldOut(*world, cluster, o).run();
  } catch (const Error& e) {
    fmt::print(stderr, "held_out: {}\n", e.what());
    return 1;
  }
}
