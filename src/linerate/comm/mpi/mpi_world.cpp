#include "linerate/comm/mpi/mpi_world.hpp"

#include <chrono>

#include "linerate/comm/expected_ranks.hpp"
#include "linerate/comm/launcher.hpp"
#include "linerate/comm/mpi/mpi_channel.hpp"
#include "linerate/comm/mpi/mpi_process.hpp"
#include "linerate/comm/mpi/start_deadline.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/comm/timeout.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

std::unique_ptr<MpiChannel> make_channel(const WorldOptions& options, Clock::duration timeout) {
  const Clock::duration limit = start_time(options.start_timeout, timeout, "MPI");
  OneWorld claim;
  const MakingWorld being_made;
  const StartDeadline deadline(limit);
  start_mpi();
  return std::make_unique<MpiChannel>(MPI_COMM_WORLD, timeout, std::move(claim));
}

}  // namespace

bool have_mpi() { return true; }
bool mpi_in_use() { return mpi_started(); }

std::unique_ptr<Communicator> make_world(const WorldOptions& options) {
  auto channel = make_channel(options, clock_time(options.timeout, "MPI: timeout"));
  // This comes after the channel exists, so that ranks part as after any failure. Rank 0 has then
  // printed what is wrong before another rank's exit makes the launcher end it.
  require_ranks(channel->size(), options.expected_size);
  if (channel->size() == 1 && !options.independent)
    if (const auto problem = lonely_rank_problem()) throw InputError("ranks", *problem);
  auto world = std::make_unique<QueuedCommunicator>(
      std::move(channel),
      CommunicatorOptions{.timeout = options.timeout, .checked = options.checked});
  set_stopper([queue = world->queue()](int status) {
    const auto alive = queue.lock();
    if (!alive) return true;
    const bool clean = alive->stop_at_exit(status);
    OneWorld::set_quiet();
    return clean;
  });
  return world;
}

}  // namespace linerate::comm
