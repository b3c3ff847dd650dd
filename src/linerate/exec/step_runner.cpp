#include "linerate/exec/step_runner.hpp"

#include <fmt/format.h>

#include "linerate/comm/agreement.hpp"
#include "linerate/core/error.hpp"

namespace linerate::exec {

void StepRunner::agree_on(const doc::Plan& plan, comm::Communicator& communicator) {
  comm::require_same(
      communicator, "plan",
      {fmt::format("strategy {} for {} ranks, {} gradients, hash {:016x}", plan.strategy,
                   plan.ranks, plan.gradient_names.size(), plan.hash())});
  // The plan is the same on all ranks from here on, and so is what is thrown.
  if (plan.ranks != communicator.size())
    throw UsageError(
        fmt::format("plan \"{}\" is for {} ranks, the communicator has {}; plan again for {} ranks",
                    plan.strategy, plan.ranks, communicator.size(), communicator.size()));
  validate(plan);
}

void StepRunner::refuse_after(const std::exception_ptr& failure) {
  std::string what = "an exception of an unknown type";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  throw CommError(fmt::format(
      "an earlier step failed ({}), so its gradients are not usable and no further step can run",
      what));
}

}  // namespace linerate::exec
