// The costs of K-FAC's parts on this machine, measured in a moment. Private to torch_adapter.
#pragma once

#include <ATen/core/TensorBody.h>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/second_order_cost.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"

namespace linerate::torch_adapter {

/// Times K-FAC's parts. Inverses (eigendecompositions) are those of a small matrix and of one as
/// large as the largest factor, up to 1024. Products are a symmetric and a plain one of that size.
/// Takes the least of three runs, which all ranks make at once, and the mean over ranks. This is
/// enough to place inverses; for predictions there is `linerate calibrate`. On a device by the
/// device's clock.
doc::SecondOrderCost probe_second_order(comm::Communicator& communicator,
                                        const std::vector<CurvatureBlock::Shape>& shapes,
                                        const at::TensorOptions& where, InverseMethod method);

}  // namespace linerate::torch_adapter
