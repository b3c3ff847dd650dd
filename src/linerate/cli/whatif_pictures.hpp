// The answer of `linerate whatif` as pictures: curves in the terminal, a page with charts.
#pragma once

#include <string>
#include <vector>

#include "linerate/advise/question.hpp"
#include "linerate/report/timeline_section.hpp"

namespace linerate::cli {

/// Scaling factor over bandwidth, one picture a rank count. Throws UsageError when no prediction
/// has a bandwidth.
void print_curves(const advise::Answer& answer);
/// The predictions, then `timelines`. `sources`: the files the answer was made from; empty names
/// are left out.
void write_whatif_page(const advise::Answer& answer,
                       const std::vector<report::NamedTimeline>& timelines, const std::string& path,
                       const std::string& command, const std::vector<std::string>& sources);

}  // namespace linerate::cli
