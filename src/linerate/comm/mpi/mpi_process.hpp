// MPI in this process: it is started once and ended once. No two threads call it at a time, no
// thread calls it after its end, and the process never hangs in it. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace linerate::comm {

/// Initialises MPI at MPI_THREAD_SERIALIZED unless the program has done so. Throws CommError when
/// that is not available, when MPI was finalised, or after call_mpi_no_more().
void start_mpi();

/// True once start_mpi has succeeded.
bool mpi_started();

/// Sets how to end the progress thread of the world that still exists when the process exits or
/// calls MPI_Finalize. It returns whether the thread has ended and no collective was in flight.
/// Replaces the one before.
void set_stopper(std::function<bool(int status)> stopper);

/// Sets how this process parts from its peers when it exits or calls MPI_Finalize. It is called on
/// that thread, when no other thread calls MPI, with whether this process succeeded. It returns
/// whether all processes did. Replaces the one before.
void set_parting(std::function<bool(bool succeeded)> parting);

/// From now on the process ends with an error and without MPI_Finalize.
void mark_failed();

/// MPI may still write to memory that is no longer ours: from now on this process never calls it
/// again.
void call_mpi_no_more();

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

  /// The world that was being made exists.
  static void set_made();
  /// The world that exists has ended its thread and no longer calls MPI.
  static void set_quiet();

 private:
  bool mine_ = true;
};

// A deadline for MPI_Init and the first collectives of a job. They wait for every rank, for ever if
// one never starts. Private to comm/mpi.

/// Unless the result is destroyed in time, prints the missing ranks on stderr and ends the process
/// with status 4. There is no milder way: MPI_Init can be neither cancelled nor left, and no other
/// thread may call MPI meanwhile.
[[nodiscard]] std::jthread start_deadline(std::chrono::steady_clock::duration limit);

}  // namespace linerate::comm
