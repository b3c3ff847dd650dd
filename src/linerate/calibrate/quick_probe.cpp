// Run before the first planned step of a training job (replan/run_planner.cpp). Training waits for
// it, so sizes grow fourfold and each has three calls. That is enough to choose bucket sizes by,
// and not for predictions.
#include "linerate/calibrate/quick_probe.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

constexpr std::int64_t kSmallest = 4096, kLargest = 16 << 20;
constexpr double kLongest = 0.2;  // seconds for one call

/// Three calls in a row, mean over ranks.
double measure(comm::Communicator& communicator, CallTimer& timer, const Call& call) {
  std::vector<double> seconds = timer.time(std::array{CallRun{call, 3}});
  mean_over_ranks(communicator, seconds);
  return seconds[0];
}

/// One table of `kind`, from the smallest size up to `largest`, or to the first size that takes too
/// long.
doc::CollectiveCost probe(comm::Communicator& communicator, CallTimer& timer, Collective kind,
                          std::int64_t largest) {
  doc::CollectiveCost cost;
  cost.collective = kind;
  cost.ranks = communicator.size();
  cost.in_place = kind == Collective::all_reduce || kind == Collective::broadcast;
  cost.source = "probe before the first planned step";
  for (std::int64_t size = kSmallest; size <= largest; size *= 4) {
    const std::int64_t bytes = whole_blocks(size, communicator.size());
    const double seconds = measure(communicator, timer, {kind, bytes});
    // A larger message never costs less: noise of three repetitions must not suggest it.
    const double floor = cost.samples.empty() ? 0.0 : cost.samples.back().seconds;
    cost.samples.push_back({static_cast<double>(bytes), std::max(seconds, floor), 0, 0});
    if (seconds > kLongest) break;
  }
  bound_start_ups(cost.samples);
  cost.segments = segments_between(cost.samples);
  return cost;
}

}  // namespace

void bound_start_ups(std::vector<doc::CostSample>& samples) {
  for (std::size_t i = samples.size(); i-- > 1;) {
    doc::CostSample& part = samples[i - 1];
    const doc::CostSample& whole = samples[i];
    const double parts = whole.bytes / part.bytes;
    const double start_up = samples.front().seconds;
    part.seconds = std::min(part.seconds, (whole.seconds + (parts - 1) * start_up) / parts);
  }
}

std::vector<doc::CostSegment> segments_between(const std::vector<doc::CostSample>& samples) {
  constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();
  std::vector<doc::CostSegment> segments;
  const auto add = [&segments](std::int64_t to, double alpha_s, double beta) {
    segments.push_back({.from_bytes = segments.empty() ? 0 : segments.back().to_bytes,
                        .to_bytes = to,
                        .alpha_s = alpha_s,
                        .beta_s_per_byte = beta,
                        .low = 0.5,
                        .high = 2});
  };
  for (std::size_t i = 0; i + 1 < samples.size(); ++i) {
    const doc::CostSample &a = samples[i], &b = samples[i + 1];
    const double beta = (b.seconds - a.seconds) / (b.bytes - a.bytes);
    const double alpha_s = a.seconds - beta * a.bytes;
    if (i == 0 && alpha_s < 0) add(static_cast<std::int64_t>(a.bytes), 0, a.seconds / a.bytes);
    const bool last = i + 2 == samples.size();
    add(last ? kNoEnd : static_cast<std::int64_t>(b.bytes), alpha_s, beta);
  }
  if (segments.empty())  // a link so slow that the smallest size already takes long
    add(kNoEnd, 0, samples[0].seconds / samples[0].bytes);
  return segments;
}

std::int64_t largest_probed(std::int64_t gradient_bytes) {
  return std::clamp<std::int64_t>(gradient_bytes, 16 * kSmallest, kLargest);
}

doc::Cluster quick_probe(comm::Communicator& communicator, CallTimer& timer,
                         std::int64_t largest_bytes, const std::vector<Collective>& kinds) {
  if (kinds.empty()) throw UsageError("quick_probe: expected a collective to time, found none");
  doc::Cluster cluster;
  cluster.name = "probed";
  cluster.ranks = communicator.size();
  for (const Collective kind : kinds)
    cluster.collectives.push_back(probe(communicator, timer, kind, largest_bytes));
  cluster.source = cluster.collectives.front().source;
  return cluster;
}

}  // namespace linerate::calibrate
