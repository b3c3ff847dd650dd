// The ranks of an mpirun job.
#pragma once

#include <memory>
#include <optional>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

/// Options of an mpirun job.
struct WorldOptions {
  bool checked = false;                // as CommunicatorOptions
  Duration timeout{300};               // as CommunicatorOptions
  std::optional<int> expected_size{};  // ranks the caller counts on
  /// As CommunicatorOptions, for MPI_Init and the first words between ranks. A rank that waits
  /// longer prints that on stderr and exits with status 4 at once, since MPI_Init can be neither
  /// left nor cancelled.
  std::optional<Duration> start_timeout{};
  /// One rank in a job of several processes is intended: each works by itself.
  bool independent = false;
};

/// True when this program was built with MPI.
[[nodiscard]] bool have_mpi();

/// The world communicator over MPI, one at a time in a process. The first call initialises MPI. MPI
/// is finalised when the process exits with status 0; otherwise the process leaves without it
/// (docs/communication.md, "How a job ends"). Collective.
///
/// Throws UsageError while an earlier world exists, and for invalid times. Throws InputError on
/// every rank if the job is not of the expected size. Also throws it if MPI knows of only one rank
/// while the launcher started several (srun without PMI). Throws CommError if linerate was built
/// without MPI or MPI cannot be used.
[[nodiscard]] std::unique_ptr<Communicator> make_world(const WorldOptions& options = {});

/// True once make_world has initialised MPI or found it initialised. From then on a rank that fails
/// tells its peers when it exits.
[[nodiscard]] bool mpi_in_use();

}  // namespace linerate::comm
