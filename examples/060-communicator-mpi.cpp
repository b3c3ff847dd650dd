// A communicator alone, over MPI: what rank 0 read is on every rank, sums travel while the rank
// computes, and a mistake is an error on every rank before anything was sent.
//
//   $ mpirun -n 2 ./060-communicator-mpi
//   2 ranks over mpi agree on a rate of 0.25
//   4 sums of 1 MB travelled while this rank computed: 3 3 3 3
//   sent 4194<*> bytes, received 4194<*>
//   error: ranks disagree on the count of a collective: <*>
//   this rank goes on: nothing was sent
#include <chrono>
#include <cstdio>
#include <vector>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"

using namespace linerate;

int main() {
  const auto world = comm::make_world({.timeout = std::chrono::seconds(30)});
  const bool first = world->rank() == 0;

  double rate = first ? 0.25 : 0;
  world->broadcast(comm::buffer(rate), /*root=*/0, "settings")->wait();
  if (first)
    std::printf("%d ranks over %s agree on a rate of %g\n", world->size(),
                world->transport().c_str(), rate);

  // Four arrays, each sent as soon as it is there. Handles come after the memory that they use: the
  // last one waits for what is under way.
  std::vector<std::vector<float>> arrays(4);
  std::vector<comm::WorkPtr> under_way;
  for (auto& array : arrays) {
    array.assign(1 << 18, 1.0f + world->rank());  // the computation
    under_way.push_back(world->all_reduce(comm::buffer(array), comm::Reduce::sum, "array"));
  }
  for (const comm::WorkPtr& work : under_way) work->wait();
  if (first)
    std::printf("4 sums of 1 MB travelled while this rank computed: %g %g %g %g\n", arrays[0][0],
                arrays[1][0], arrays[2][0], arrays[3].back());
  const comm::Traffic traffic = world->traffic();
  if (first)
    std::printf("sent %lld bytes, received %lld\n", static_cast<long long>(traffic.sent.value),
                static_cast<long long>(traffic.received.value));

  {  // Longer than the timeout may take: the others wait for as long as this process lives.
    const comm::Busy busy = world->busy("writing a checkpoint");
  }

  // Checked mode compares what ranks submit before each operation; switch it where all ranks do.
  world->set_checked(true);
  try {
    std::vector<float> values(first ? 1000 : 1001);
    world->all_reduce(comm::buffer(values), comm::Reduce::sum, "values")->wait();
  } catch (const CommError& e) {
    if (first) std::printf("error: %s\nthis rank goes on: nothing was sent\n", e.what());
  }
  world->barrier("the end")->wait();
}
