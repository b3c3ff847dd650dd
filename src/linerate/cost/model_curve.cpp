#include "linerate/cost/model_curve.hpp"

namespace linerate::cost {

CostCurve cost_curve(const CostModel& model, Collective collective, int ranks, DType dtype) {
  return model.curve(collective, ranks, dtype);
}

}  // namespace linerate::cost
