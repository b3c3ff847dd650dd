// MPI in this process: it is started once and ended once. No two threads call it at a time, no
// thread calls it after its end, and the process never hangs in it. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "linerate/comm/transport.hpp"

namespace linerate::comm {

/// Sets how this process parts from its peers when it exits or calls MPI_Finalize. It is called on
/// that thread, when no other thread calls MPI, with whether this process succeeded. It returns
/// whether all processes did. Replaces the one before.
void set_parting(std::function<bool(bool succeeded)> parting);

/// MPI may still write to memory that is no longer ours: from now on this process never calls it
/// again.
void call_mpi_no_more();

/// The run has failed: this process will not part as one that succeeded.
void note_failure();

/// False after call_mpi_no_more() and from MPI_Finalize on.
bool may_call_mpi();

/// MPI's text for an error code.
std::string error_text(int code);

/// Throws CommError when an MPI call reports an error.
void check_mpi(int code, std::string_view call);

// One world at a time in a process: each has a thread of its own that calls MPI, and
// MPI_THREAD_SERIALIZED allows but one. Private to comm/mpi.

/// The right to be the world of this process, given back by the destructor. While the world is
/// being made, its thread calls MPI. An exit from another thread then leaves without MPI.
class OneWorld {
 public:
  /// Throws UsageError while another one has it.
  OneWorld();
  OneWorld(OneWorld&& other) noexcept : mine_(std::exchange(other.mine_, false)) {}
  OneWorld& operator=(OneWorld&&) = delete;
  ~OneWorld();

 private:
  bool mine_ = true;
};

/// Messages over MPI's non-blocking point-to-point calls, with signs of life next to them. It
/// becomes what this process parts by.
std::unique_ptr<Transport> make_mpi_channel(MPI_Comm world, Clock::duration timeout,
                                            OneWorld claim);

}  // namespace linerate::comm
