// The only form of this back end so far: it says what is missing.
#include "linerate/comm/nccl/nccl_world.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {

bool have_nccl() { return false; }

std::unique_ptr<Communicator> make_nccl_world(const CommunicatorOptions&) {
  throw CommError(
      "built without NCCL: this version of linerate has no NCCL back end yet; it will need "
      "libnccl2 and libnccl-dev. Use the MPI back end (mpirun, install openmpi-bin and "
      "libopenmpi-dev)");
}

}  // namespace linerate::comm
