// What-if predictions as charts: scaling factor over bandwidth, best strategy over bandwidth and
// ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/report/page.hpp"

namespace linerate::report {

/// One entry of `linerate whatif --json`. Absent: undefined there.
struct Prediction {
  std::string strategy;
  int ranks = 0;
  double bandwidth_bit_per_s = 0;
  std::optional<double> compression_ratio;
  std::optional<double> step_s, step_low_s, step_high_s;
  std::optional<double> scaling_factor;
  bool changes_convergence = false;  // its steps are other steps, so step times do not compare
};

/// Reads {"predictions": [...]}. Throws InputError naming the entry and the key.
std::vector<Prediction> predictions_from_json(const std::string& text, const std::string& place);

/// One chart a rank count, one line per strategy and compression ratio. Bands: the step's interval,
/// as scaling factor.
std::vector<LineChart> scaling_charts(const std::vector<Prediction>& predictions);

/// Least predicted step per (bandwidth, ranks). Only strategies that take the same steps are
/// compared, at one compression ratio: what a higher ratio costs in further steps is not known
/// here. One map a ratio; empty with fewer than two such strategies.
std::vector<HeatMap> best_strategy_maps(const std::vector<Prediction>& predictions);

/// Charts, maps and the numbers of one set of predictions.
Section section_of(const std::vector<Prediction>& predictions, const std::string& title);

}  // namespace linerate::report
