// Ranks that read each other's memory until the last one is not let any more, in mid-run: every
// result before, in between and after is right. exit 77 where ranks do not read at all.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "faults/deny_reads.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"

using namespace linerate;

int main() {
  try {
    const auto world = comm::make_world({.timeout = Duration{20}});
    const auto group = world->split(0, -world->rank(), "reversed");
    std::vector<float> x(3'000'001);
    for (int round = 0; round < 8; ++round) {
      if (round == 3 && world->rank() == world->size() - 1 && !deny_reads()) return 77;
      for (comm::Communicator* comm : {world.get(), group.get()}) {
        std::fill(x.begin(), x.end(), static_cast<float>(world->rank() + 1));
        comm->all_reduce(comm::buffer(x), comm::Reduce::sum, "grad")->wait();
        const auto want = static_cast<float>(world->size() * (world->size() + 1) / 2);
        if (std::any_of(x.begin(), x.end(), [want](float v) { return v != want; })) {
          std::fprintf(stderr, "rank %d: wrong in round %d\n", world->rank(), round);
          return 1;
        }
      }
    }
    std::printf("rank %d: right\n", world->rank());
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "said: %s\n", e.what());
    return e.exit_code();
  }
}
