#include "linerate/calibrate/quick_probe.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "linerate/core/clock.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

constexpr double kLongest = 0.2;  // seconds for one all-reduce

double measure(comm::Communicator& communicator, std::vector<float>& values) {
  std::array<double, 3> seconds{};
  for (int repetition = -1; repetition < 3; ++repetition) {  // the first one warms up
    communicator.barrier("probe barrier")->wait();
    const std::int64_t start = steady_ns();
    communicator
        .all_reduce({values.data(), {static_cast<std::int64_t>(values.size())}, DType::f32},
                    comm::Reduce::sum, "probe all-reduce")
        ->wait();
    if (repetition >= 0)
      seconds[static_cast<std::size_t>(repetition)] =
          static_cast<double>(steady_ns() - start) * 1e-9;
  }
  double slowest = median(seconds);
  communicator.all_reduce({&slowest, {1}, DType::f64}, comm::Reduce::max, "probe result")->wait();
  return slowest;
}

}  // namespace

doc::Cluster probe_all_reduce(comm::Communicator& communicator, std::int64_t largest_bytes) {
  doc::CollectiveCost cost;
  cost.ranks = communicator.size();
  cost.in_place = true;
  cost.source = "probe before the first planned step";
  for (std::int64_t bytes = 4096;
       bytes <= std::min<std::int64_t>(std::max<std::int64_t>(largest_bytes, 65536), 16 << 20);
       bytes *= 4) {
    std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float), 0.0f);
    const double seconds = measure(communicator, values);
    // A larger message never costs less: noise of three repetitions must not suggest it.
    const double floor = cost.samples.empty() ? 0.0 : cost.samples.back().seconds;
    cost.samples.push_back({static_cast<double>(bytes), std::max(seconds, floor), 0, 0});
    if (seconds > kLongest) break;
  }
  std::int64_t from = 0;
  for (std::size_t i = 0; i + 1 < cost.samples.size(); ++i) {
    const doc::CostSample &a = cost.samples[i], &b = cost.samples[i + 1];
    const double beta = (b.seconds - a.seconds) / (b.bytes - a.bytes);
    const bool last = i + 2 == cost.samples.size();
    const std::int64_t to =
        last ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(b.bytes);
    cost.segments.push_back({.from_bytes = from,
                             .to_bytes = to,
                             .alpha_s = std::max(0.0, a.seconds - beta * a.bytes),
                             .beta_s_per_byte = beta,
                             .low = 0.5,
                             .high = 2});
    from = to;
  }
  if (cost.segments.empty())  // a link so slow that 4 KiB already take long
    cost.segments.push_back({.from_bytes = 0,
                             .to_bytes = std::numeric_limits<std::int64_t>::max(),
                             .alpha_s = 0,
                             .beta_s_per_byte = cost.samples[0].seconds / cost.samples[0].bytes,
                             .low = 0.5,
                             .high = 2});
  doc::Cluster cluster;
  cluster.name = "probed";
  cluster.source = cost.source;
  cluster.ranks = communicator.size();
  cluster.collectives = {cost};
  return cluster;
}

}  // namespace linerate::calibrate
