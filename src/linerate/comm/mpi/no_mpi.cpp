// Replaces mpi_world.cpp in builds without MPI.
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {

bool have_mpi() { return false; }
bool mpi_in_use() { return false; }

std::unique_ptr<Communicator> make_world(const WorldOptions&) {
  throw CommError(
      "built without MPI: install openmpi-bin and libopenmpi-dev (tools/setup) and configure with "
      "LINERATE_WITH_MPI=ON");
}

}  // namespace linerate::comm
