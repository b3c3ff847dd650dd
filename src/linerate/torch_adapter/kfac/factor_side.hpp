// Names of the parts of a layer's curvature.
#pragma once

#include "linerate/doc/block.hpp"

namespace linerate::torch_adapter {

using doc::BlockKind;
using doc::FactorSide;

}  // namespace linerate::torch_adapter
