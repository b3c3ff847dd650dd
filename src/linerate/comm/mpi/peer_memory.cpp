// Ranks of one host read each other's memory by one system call (CMA), with a single copy and
// without the peer's help. Whether that works depends on the kernel, containers and pids, so it is
// tried. Each rank gathers the others' pids and the addresses of their random numbers, and reads
// the numbers. A rank on another host has no such pid, or another process has it, so the number is
// wrong.
#include "linerate/comm/mpi/peer_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "linerate/comm/mpi/mpi_process.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

/// One of Open MPI's settings as `mpirun --mca` and the user's environment hand it to a rank; empty
/// if it is not set. (MPI_T would also see settings files, but takes 0.2 s to start.)
std::string setting(const char* name) {
  const char* value = std::getenv((std::string("OMPI_MCA_") + name).c_str());
  return value == nullptr ? "" : value;
}

/// Whether Open MPI's setting `btl` allows shared memory. It is a list of transports, or with "^"
/// of those left out; empty: all.
bool lists_shared_memory(const std::string& transports) {
  const bool leaves_out = transports.starts_with('^');
  bool named = false;
  for (std::size_t at = leaves_out ? 1 : 0; at <= transports.size();) {
    const std::size_t end = std::min(transports.find(',', at), transports.size());
    const std::string name = transports.substr(at, end - at);
    named = named || name == "vader" || name == "sm";
    at = end + 1;
  }
  return transports.empty() || named != leaves_out;
}

bool single_copies_allowed() {
  return lists_shared_memory(setting("btl")) &&
         setting("btl_vader_single_copy_mechanism") != "none";
}

}  // namespace

std::optional<PeerMemory> PeerMemory::open(MPI_Comm world, bool wanted) {
  int ranks = 0;
  MPI_Comm_size(world, &ranks);
  struct Word {
    std::uint64_t pid, address, value;
  };
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::uint64_t value =
      static_cast<std::uint64_t>(now) ^ (static_cast<std::uint64_t>(getpid()) << 40);
  const Word own{static_cast<std::uint64_t>(getpid()), reinterpret_cast<std::uintptr_t>(&value),
                 value};
  std::vector<Word> words(to_index(ranks));
  check_mpi(MPI_Allgather(&own, sizeof own, MPI_BYTE, words.data(), sizeof own, MPI_BYTE, world),
            "MPI_Allgather");
  PeerMemory memory;
  for (const Word& word : words) memory.pids_.push_back(static_cast<pid_t>(word.pid));
  int works = wanted && single_copies_allowed() ? 1 : 0;
  for (int r = 0; r < ranks && works != 0; ++r) {
    const Word& word = words[to_index(r)];
    std::uint64_t found = 0;
    if (!memory.read(r, word.address, &found, sizeof found).copied() || found != word.value)
      works = 0;
  }
  // Also keeps `value` where it is until all have read it.
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &works, 1, MPI_INT, MPI_MIN, world), "MPI_Allreduce");
  if (works == 0 || ranks == 1) return std::nullopt;
  return memory;
}

PeerMemory::Outcome PeerMemory::read(int peer, std::uint64_t address, void* into,
                                     std::size_t bytes) const {
  auto* to = static_cast<std::byte*>(into);
  while (bytes > 0) {
    const iovec local{to, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(pids_[to_index(peer)], &local, 1, &remote, 1, 0);
    if (got <= 0) {
      const int error = got == 0 ? EFAULT : errno;
      if (error == EPERM || error == ENOSYS || error == EACCES) return {.denied = true};
      return {
          .problem = fmt::format(
              "rank {}'s memory cannot be read ({}); the rank has ended or left this collective",
              peer, std::strerror(error))};
    }
    to += got, address += static_cast<std::uint64_t>(got), bytes -= to_index(got);
  }
  return {};
}

}  // namespace linerate::comm
