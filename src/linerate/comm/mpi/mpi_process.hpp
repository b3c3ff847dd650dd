// MPI in this process: it is started once and ended once. No two threads call it at a time, no
// thread calls it after its end, and the process never hangs in it. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <string_view>

namespace linerate::comm {

/// Initialises MPI at MPI_THREAD_SERIALIZED unless the program has done so. Throws CommError when
/// that is not available, when MPI was finalised, or after call_mpi_no_more().
void start_mpi();

/// True once start_mpi has succeeded.
bool mpi_started();

/// While an object exists, this thread calls MPI to make a world. An exit from another thread then
/// leaves without MPI.
class MakingWorld {
 public:
  MakingWorld();
  ~MakingWorld();
  MakingWorld(const MakingWorld&) = delete;
  MakingWorld& operator=(const MakingWorld&) = delete;
};

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

}  // namespace linerate::comm
