// A Plan as a graph for GraphViz.
#pragma once

#include <string>

#include "linerate/doc/plan.hpp"

namespace linerate::report {

/// A digraph: a frame for each variant and in it one for each lane; an arrow leads to what waits, a
/// dashed one into the next step. Tasks that others drive have round corners.
std::string to_dot(const doc::Plan& plan);

}  // namespace linerate::report
