// MPI in this process: started once, ended once, never called by two threads at a time nor after
// its end, and never left hanging. Private to comm/mpi.
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

/// While one exists this thread calls MPI to make a world: an exit from another thread leaves
/// without MPI.
class MakingWorld {
 public:
  MakingWorld();
  ~MakingWorld();
  MakingWorld(const MakingWorld&) = delete;
  MakingWorld& operator=(const MakingWorld&) = delete;
};

/// How to end the progress thread of the world that still exists when the process exits or calls
/// MPI_Finalize: returns whether it has ended and nothing was under way. Replaces the one before.
void set_stopper(std::function<bool(int status)> stopper);

/// How this process parts from its peers when it exits or calls MPI_Finalize; called on the thread
/// that does so, when no other calls MPI, with whether it succeeded; returns whether all of them
/// did. Replaces the one before.
void set_parting(std::function<bool(bool succeeded)> parting);

/// From now on the process ends with an error and without MPI_Finalize.
void mark_failed();

/// MPI may still write to memory that is no longer ours: no more calls, to the end.
void call_mpi_no_more();

/// False after call_mpi_no_more() and from MPI_Finalize on.
bool may_call_mpi();

/// What MPI says of an error code.
std::string error_text(int code);

/// Throws CommError when an MPI call reports an error.
void check_mpi(int code, std::string_view call);

}  // namespace linerate::comm
