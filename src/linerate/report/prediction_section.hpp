// What-if predictions as charts: scaling factor over bandwidth, best strategy over bandwidth and
// ranks.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/prediction.hpp"
#include "linerate/report/heat_map.hpp"
#include "linerate/report/line_chart.hpp"
#include "linerate/report/page.hpp"
#include "linerate/report/row_chart.hpp"

namespace linerate::report {

/// One chart a rank count, one line per strategy and compression ratio. Predictions without a
/// bandwidth are in neither charts nor maps. Bands: the step's interval,
/// as scaling factor.
std::vector<LineChart> scaling_charts(const std::vector<doc::Prediction>& predictions);

/// Least predicted step per (bandwidth, ranks). Only strategies that take the same steps are
/// compared, at one compression ratio: what a higher ratio costs in further steps is not known
/// here. One map a ratio; empty with fewer than two such strategies.
std::vector<HeatMap> best_strategy_maps(const std::vector<doc::Prediction>& predictions);

/// The titles of the parts of a K-FAC step (doc::StepPart).
inline constexpr std::array<const char*, doc::kStepPartNames.size()> kPartTitles = {
    "forward, backward", "gradients", "factors", "their sums", "inverses", "their broadcasts"};

/// A bar a prediction that knows its parts; absent: none does.
std::optional<RowChart> parts_chart(const std::vector<doc::Prediction>& predictions);

/// Notes, charts, maps, parts and the numbers of one set of predictions. What has no bandwidth is
/// in the table only.
Section section_of(const doc::Predictions& predictions, const std::string& title);

}  // namespace linerate::report
