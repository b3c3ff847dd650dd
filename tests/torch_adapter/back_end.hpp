// Where the ranks of the suite come from: a test program links one of the two definitions.
#pragma once

#include <functional>

#include "linerate/comm/communicator.hpp"

namespace linerate::torch_adapter {

/// Runs f on n ranks. ranks_as_threads.cpp: threads of this process. ranks_under_mpi.cpp: this
/// process is one of them, and the test is skipped in a job of another size. f is the whole test.
void run_on(int n, const std::function<void(comm::Communicator&)>& f);

}  // namespace linerate::torch_adapter
