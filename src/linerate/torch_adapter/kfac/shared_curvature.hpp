// What planners have to know of a model's K-FAC layers. Private to torch_adapter.
#pragma once

#include <optional>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/replan/run_planner.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"

namespace linerate::torch_adapter {

/// What the strategy says behind '+' about K-FAC, completed by the kinds of layers and of
/// inverses that the preconditioner has; nothing where both are absent. Throws UsageError where one
/// of them is there alone, or the strategy shares it in a way that training cannot.
std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy,
                                      const Preconditioner* preconditioner);

/// Layer b is that of block b. Collective: measures what inverses cost.
replan::SecondOrder second_order_of(const Preconditioner& preconditioner,
                                    comm::Communicator& communicator);

}  // namespace linerate::torch_adapter
