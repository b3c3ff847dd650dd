// Where is a fit worst? Leave-one-out errors say it: a size that the others cannot foresee lies at
// a bend or a jump. Another size next to it locates that. If the medians themselves are in doubt,
// the error may be noise, and repetitions help more than sizes.
#include "linerate/calibrate/size_search.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/calibrate/fit.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

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
