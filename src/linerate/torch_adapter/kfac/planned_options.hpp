// From a strategy's kfac(...) to the preconditioner's options. Private to linerate.
#pragma once

#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"

namespace linerate::torch_adapter {

/// What the text says. The rest, such as the loss's average and the rate, is the caller's.
[[nodiscard]] KfacOptions planned_options(const plan::Kfac& kfac);

}  // namespace linerate::torch_adapter
