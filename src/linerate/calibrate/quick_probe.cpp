#include "linerate/calibrate/quick_probe.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "linerate/calibrate/call_train.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

constexpr std::int64_t kSmallest = 4096, kLargest = 16 << 20;
constexpr double kLongest = 0.2;  // seconds for one call

/// Three calls in a row, mean over ranks.
double measure(comm::Communicator& communicator, CallTrain& train, const Call& call) {
  std::vector<double> seconds = train.time(std::array{CallRun{call, 3}});
  mean_over_ranks(communicator, seconds);
  return seconds[0];
}

/// Straight from sample to sample; the last line goes on. If the first one falls below zero, the
/// cost of smaller sizes is cost::evaluate's: half the bytes never take less than half the time.
std::vector<doc::CostSegment> joined(const std::vector<doc::CostSample>& samples) {
  constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();
  std::vector<doc::CostSegment> segments;
  std::int64_t from = 0;
  for (std::size_t i = 0; i + 1 < samples.size(); ++i) {
    const doc::CostSample &a = samples[i], &b = samples[i + 1];
    const double beta = (b.seconds - a.seconds) / (b.bytes - a.bytes);
    const bool last = i + 2 == samples.size();
    const std::int64_t to = last ? kNoEnd : static_cast<std::int64_t>(b.bytes);
    segments.push_back({.from_bytes = from,
                        .to_bytes = to,
                        .alpha_s = a.seconds - beta * a.bytes,
                        .beta_s_per_byte = beta,
                        .low = 0.5,
                        .high = 2});
    from = to;
  }
  if (segments.empty())  // a link so slow that the smallest size already takes long
    segments.push_back({.from_bytes = 0,
                        .to_bytes = kNoEnd,
                        .alpha_s = 0,
                        .beta_s_per_byte = samples[0].seconds / samples[0].bytes,
                        .low = 0.5,
                        .high = 2});
  return segments;
}

doc::CollectiveCost probe(comm::Communicator& communicator, CallTrain& train, Collective kind,
                          std::int64_t largest) {
  doc::CollectiveCost cost;
  cost.collective = kind;
  cost.ranks = communicator.size();
  cost.in_place = kind == Collective::all_reduce || kind == Collective::broadcast;
  cost.source = "probe before the first planned step";
  for (std::int64_t size = kSmallest; size <= largest; size *= 4) {
    const std::int64_t bytes = whole_blocks(size, communicator.size());
    const double seconds = measure(communicator, train, {kind, bytes});
    // A larger message never costs less: noise of three repetitions must not suggest it.
    const double floor = cost.samples.empty() ? 0.0 : cost.samples.back().seconds;
    cost.samples.push_back({static_cast<double>(bytes), std::max(seconds, floor), 0, 0});
    if (seconds > kLongest) break;
  }
  bound_start_ups(cost.samples);
  cost.segments = joined(cost.samples);
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

doc::Cluster quick_probe(comm::Communicator& communicator, std::int64_t largest_bytes,
                         const std::vector<Collective>& kinds) {
  if (kinds.empty()) throw UsageError("quick_probe: expected a collective to time, found none");
  const std::int64_t largest = std::clamp<std::int64_t>(largest_bytes, 16 * kSmallest, kLargest);
  CallTrain train(communicator, largest);
  doc::Cluster cluster;
  cluster.name = "probed";
  cluster.ranks = communicator.size();
  for (const Collective kind : kinds)
    cluster.collectives.push_back(probe(communicator, train, kind, largest));
  cluster.source = cluster.collectives.front().source;
  return cluster;
}

}  // namespace linerate::calibrate
