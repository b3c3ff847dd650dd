// The memory of other ranks on this host, read by the kernel (CMA, process_vm_readv). Private to
// comm/mpi.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace linerate::comm {

class PeerMemory {
 public:
  /// Opens the memory of all ranks. Returns nothing, on every rank alike, unless three things hold.
  /// All ranks want it; MPI's own settings let it use shared memory with single copies; and every
  /// rank has read a word of every other. Collective.
  static std::optional<PeerMemory> open(MPI_Comm world, bool wanted);

  /// The outcome of a read. All bytes were copied, or this process may not read that memory
  /// (`denied`), or `problem` tells why the peer cannot be read.
  struct Outcome {
    bool denied = false;
    std::optional<std::string> problem{};
    bool copied() const { return !denied && !problem; }
  };
  Outcome read(int peer, std::uint64_t address, void* into, std::size_t bytes) const;

 private:
  std::vector<pid_t> pids_;  // by rank
};

}  // namespace linerate::comm
