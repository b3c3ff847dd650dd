// Agrees on the times of K-FAC's work. Each rank has medians over its window for the layers and
// factors that it worked on. With kfac(mem), for example, one rank alone makes an inverse. So sums
// and counts travel in one all-reduce, and the mean is over the ranks that measured.
#include "linerate/replan/curvature_profile.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::replan {
namespace {

using Part = std::vector<double> CurvatureTimes::*;
constexpr Part kParts[] = {&CurvatureTimes::forward_s, &CurvatureTimes::factor_a_s,
                           &CurvatureTimes::factor_g_s, &CurvatureTimes::inverse_s};

/// The median over the steps that measured a part; negative if none did.
double median_of(const std::vector<CurvatureTimes>& steps, Part part, std::size_t i) {
  std::vector<double> seen;
  for (const CurvatureTimes& step : steps)
    if (i < (step.*part).size() && (step.*part)[i] >= 0) seen.push_back((step.*part)[i]);
  return seen.empty() ? -1 : median(seen);
}

/// Means of one part of all blocks or factors over the ranks that have it.
std::vector<std::optional<double>> means(comm::Communicator& communicator,
                                         const std::vector<double>& mine) {
  std::vector<double> sums, counts;
  for (const double s : mine) {
    sums.push_back(std::max(s, 0.0));
    counts.push_back(s >= 0 ? 1 : 0);
  }
  sums.insert(sums.end(), counts.begin(), counts.end());
  communicator.all_reduce(comm::buffer(sums), comm::Reduce::sum, "times of second-order steps")
      ->wait();
  std::vector<std::optional<double>> all(mine.size());
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (sums[mine.size() + i] > 0) all[i] = sums[i] / sums[mine.size() + i];
  return all;
}

/// Sets the times of inverses by dimension: the mean time of one matrix, over all factors of that
/// size.
void set_inverses(const std::vector<std::optional<double>>& seconds, const doc::Workload& workload,
                  doc::SecondOrderCost& cost) {
  std::map<std::int64_t, std::vector<double>> by_dimension;
  for (std::size_t f = 0; f < seconds.size(); ++f) {
    const auto factor = static_cast<std::int32_t>(f);
    const doc::Block& block = workload.blocks[to_index(doc::block_of_factor(factor))];
    const doc::FactorSide side = doc::side_of_factor(factor);
    if (seconds[f] && block.dense(side))
      by_dimension[block.dimension(side)].push_back(*seconds[f] / block.groups);
  }
  if (by_dimension.empty()) return;
  cost.inverses.clear();
  for (const auto& [dimension, values] : by_dimension)
    cost.inverses.push_back({dimension, mean(values)});
}

}  // namespace

void CurvatureProfile::agree(comm::Communicator& communicator, doc::Workload& workload,
                             doc::SecondOrderCost& cost) const {
  const std::size_t blocks = workload.blocks.size();
  for (const Part part : kParts) {
    const bool of_factors = part == &CurvatureTimes::inverse_s;
    std::vector<double> mine;
    for (std::size_t i = 0; i < (of_factors ? 2 : 1) * blocks; ++i)
      mine.push_back(median_of(steps_, part, i));
    const std::vector<std::optional<double>> all = means(communicator, mine);
    if (of_factors) return set_inverses(all, workload, cost);
    for (std::size_t b = 0; b < blocks; ++b) {
      if (!all[b]) continue;
      if (part == &CurvatureTimes::forward_s)
        workload.layers[to_index(workload.blocks[b].layer)].forward_s = all[b];
      else if (part == &CurvatureTimes::factor_a_s)
        workload.blocks[b].factor_a_s = all[b];
      else
        workload.blocks[b].factor_g_s = all[b];
    }
  }
}

}  // namespace linerate::replan
