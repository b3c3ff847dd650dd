// The ranks of an mpirun job.
#pragma once

#include <memory>
#include <optional>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

struct WorldOptions {
  bool checked = false;                // as CommunicatorOptions
  Seconds timeout{300};                // as CommunicatorOptions
  std::optional<int> expected_size{};  // ranks the caller counts on
};

/// True when this program was built with MPI.
bool have_mpi();

/// The world communicator over MPI, one at a time in a process. The first call initialises MPI; MPI
/// is finalised when the process exits with status 0, and otherwise the process leaves without it
/// (docs/communication.md, "How a job ends"). Throws CommError when the world is not of the
/// expected size, or when linerate was built without MPI.
std::unique_ptr<Communicator> make_world(const WorldOptions& options = {});

}  // namespace linerate::comm
