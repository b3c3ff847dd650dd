// What a CostModel knows of one collective, as a curve.
#pragma once

#include "linerate/cost/cost_curve.hpp"
#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {

/// CostModel::collective() as a function of size.
CostCurve cost_curve(const CostModel& model, Collective collective, int ranks,
                     DType dtype = DType::f32);

}  // namespace linerate::cost
