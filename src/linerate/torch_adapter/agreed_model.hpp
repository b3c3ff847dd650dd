// The checks with which ranks agree before a model's gradients may be exchanged. Private to
// torch_adapter.
#pragma once

#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {

/// Compares names, types, shapes and options of all ranks, before any gradient is sent. `problem`
/// is what this rank already found wrong; empty: nothing. `who` begins messages and names of
/// collectives.
///
/// Without this, ranks with different layers would fail later, with a message about bytes and not
/// about the layer. Worse, two layers of equal size could be added up. All errors here are thrown
/// on every rank, or on none. Throws CommError or UsageError. Collective.
ModelState agreed_model(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::string& problem, comm::Communicator& communicator,
                        const DataParallelOptions& options, const std::string& who);

}  // namespace linerate::torch_adapter
