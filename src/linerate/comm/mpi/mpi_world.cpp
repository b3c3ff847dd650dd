#include "linerate/comm/mpi/mpi_world.hpp"

#include <fmt/format.h>

#include "linerate/comm/mpi/mpi_channel.hpp"
#include "linerate/comm/mpi/mpi_process.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {

bool have_mpi() { return true; }

std::unique_ptr<Communicator> make_world(const WorldOptions& options) {
  start_mpi();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (options.expected_size && size != *options.expected_size) {
    throw CommError(
        fmt::format("the job has {} rank{}, {} were asked for; start it with: mpirun -n {} ...",
                    size, size == 1 ? "" : "s", *options.expected_size, *options.expected_size));
  }
  const auto timeout = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.timeout.value));
  return std::make_unique<QueuedCommunicator>(
      std::make_unique<MpiChannel>(MPI_COMM_WORLD, timeout),
      CommunicatorOptions{.timeout = options.timeout, .checked = options.checked});
}

}  // namespace linerate::comm
