// An Evaluation for a terminal, and the cells that pages share with it.
#pragma once

#include <string>
#include <vector>

#include "linerate/core/text_table.hpp"
#include "linerate/doc/evaluation.hpp"

namespace linerate::evaluation {

/// Head and cells of one table.
struct Cells {
  std::vector<TextColumn> columns;
  std::vector<std::vector<std::string>> rows;
};

/// Step, ratios to the baselines, timed regions and bytes on the wire of every timed run.
Cells timing_cells(const doc::Setup& setup);
/// What Agarwal et al. ask of a compressor, of every candidate: summable, cheap, overlapping,
/// without hyper-parameters.
Cells property_cells(const doc::Setup& setup);
/// Accuracy after equal steps and equal time, and the steps-to-target ratio.
Cells accuracy_cells(const doc::Setup& setup);

/// "noise floor (A/A): 1.2 %; a gain counts beyond it", or that there is none.
std::string noise_sentence(const doc::Setup& setup);
/// "target: test accuracy 88.1 %, tested every 50 steps"; empty if nothing was trained.
std::string target_sentence(const doc::Setup& setup);

/// Setup by setup, then how many gain.
std::string to_text(const doc::Evaluation& evaluation);

}  // namespace linerate::evaluation
