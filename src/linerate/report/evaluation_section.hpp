// An Evaluation as charts: step times next to the baselines, accuracy over steps and over time.
#pragma once

#include <vector>

#include "linerate/doc/evaluation.hpp"
#include "linerate/report/line_chart.hpp"
#include "linerate/report/page.hpp"
#include "linerate/report/row_chart.hpp"

namespace linerate::report {

/// How many gain, then a section a setup.
std::vector<Section> sections_of(const doc::Evaluation& evaluation);

/// Step times of all timed runs: the median over rounds with the least and the greatest; baselines
/// and the A/A run are marked.
RowChart step_chart(const doc::Setup& setup);
/// Test accuracy by step, or by seconds of training: a line a strategy, the mean over its
/// seeds with their range. Runs with equal steps; those that diverged are left out.
LineChart accuracy_chart(const doc::Setup& setup, bool over_time);

}  // namespace linerate::report
