// Whether a strategy takes other steps than the uncompressed, first-order ones.
#pragma once

#include "linerate/doc/strategy.hpp"

namespace linerate::doc {

/// True when the steps of this strategy are other steps than the uncompressed ones: anything behind
/// '+', or a wire type narrower than the gradients'. Such strategies compare by time to target, not
/// by step time.
bool changes_convergence(const Strategy& strategy);

}  // namespace linerate::doc
