#include "linerate/torch_adapter/agreed_model.hpp"

#include <fmt/format.h>

#include "linerate/comm/agreement.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::torch_adapter {

ModelState agreed_model(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::string& problem, comm::Communicator& communicator,
                        const DataParallelOptions& options, const std::string& who) {
  std::string wrong =
      problem.empty() ? unsupported(parameters, buffers, !options.device_group.empty()) : problem;
  ModelState state;
  if (wrong.empty()) {
    state = collect(parameters, buffers);
    if (state.trained.empty()) wrong = "no parameter requires a gradient";
  }
  comm::require_no_problem(communicator, who, wrong);
  comm::require_success(communicator, who, [&] {
    if (options.cluster) validate(*options.cluster, who + ": option cluster");
  });
  comm::require_same(communicator, who + ": model", describe(parameters, buffers));
  comm::require_same(
      communicator, who + ": options",
      {"name " + options.name, "strategy " + options.strategy,
       fmt::format("buffers {}", static_cast<int>(options.buffers)),
       "device group " + options.device_group,
       fmt::format("measured steps {}, replan above {}, most above ddp {}", options.measured_steps,
                   options.replan_above, options.most_above_ddp),
       options.cluster ? "cluster " + to_json(*options.cluster) : "no cluster"});
  return state;
}

}  // namespace linerate::torch_adapter
