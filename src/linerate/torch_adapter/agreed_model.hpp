// What ranks agree on before a model's gradients may be exchanged. Private to torch_adapter.
#pragma once

#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {

/// Compares names, types, shapes and options of all ranks; `problem` is what this rank already
/// found wrong; may be empty. `who` begins messages and names of collectives. Throws CommError or
/// UsageError on every rank, or on none. Collective.
ModelState agreed_model(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::string& problem, comm::Communicator& communicator,
                        const DataParallelOptions& options, const std::string& who);

}  // namespace linerate::torch_adapter
