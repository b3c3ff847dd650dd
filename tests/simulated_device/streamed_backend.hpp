// A back end of process groups that exchanges the memory of simulated devices, as NCCL's exchanges
// a GPU's.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace linerate::simulated {

/// Each collective is enqueued in a stream of the back end's own, which first waits for the current
/// one; wait() of what it returns lets the current stream wait for its end, and the host for
/// nothing. `inner`, a back end for the CPU, exchanges the bytes. CPU tensors go to it as they are.
c10::intrusive_ptr<::c10d::Backend> streamed(c10::intrusive_ptr<::c10d::Backend> inner);

}  // namespace linerate::simulated
