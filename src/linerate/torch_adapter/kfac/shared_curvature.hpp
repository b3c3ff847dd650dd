// The facts about a model's K-FAC layers that planners need. Private to torch_adapter.
#pragma once

#include <optional>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/replan/run_planner.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"

namespace linerate::torch_adapter {

/// The strategy's K-FAC, completed by the preconditioner's kinds of layers and inverses; absent if
/// neither has it. Throws UsageError if only one of them has it, or if the strategy shares it in a
/// way that training cannot.
std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy, Preconditioner* preconditioner);

/// Layer b belongs to block b. Collective: measures what inverses cost.
replan::SecondOrder second_order_of(const Preconditioner& preconditioner,
                                    comm::Communicator& communicator);

}  // namespace linerate::torch_adapter
