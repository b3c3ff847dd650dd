#include "linerate/comm/mpi/mpi_world.hpp"

#include "linerate/comm/expected_ranks.hpp"
#include "linerate/comm/mpi/mpi_channel.hpp"
#include "linerate/comm/mpi/mpi_process.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/comm/timeout.hpp"

namespace linerate::comm {

bool have_mpi() { return true; }
bool mpi_in_use() { return mpi_started(); }

std::unique_ptr<Communicator> make_world(const WorldOptions& options) {
  const Clock::duration timeout = to_duration(options.timeout, "make_world: timeout");
  OneWorld claim;
  start_mpi();
  auto channel = std::make_unique<MpiChannel>(MPI_COMM_WORLD, timeout, std::move(claim));
  // Behind the channel, so that ranks part as after any failure: rank 0 has said what is wrong
  // before another one's exit makes the launcher end it.
  require_ranks(channel->size(), options.expected_size);
  return std::make_unique<QueuedCommunicator>(
      std::move(channel),
      CommunicatorOptions{.timeout = options.timeout, .checked = options.checked});
}

}  // namespace linerate::comm
