// The ranks of an mpirun job meet.
#include <cstdio>

#include "linerate/comm/mpi/mpi_world.hpp"

int main() {
  const auto world = linerate::comm::make_world();
  world->barrier("ready")->wait();
  if (world->rank() == 0) std::printf("%d ranks\n", world->size());
}
