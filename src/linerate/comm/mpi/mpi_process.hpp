// MPI in this process: started once, ended once, and never left hanging. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <functional>
#include <string_view>

namespace linerate::comm {

/// Initialises MPI at MPI_THREAD_SERIALIZED unless the program has done so. Throws CommError when
/// that is not to be had.
void start_mpi();

/// What the exit handler does before the process leaves with an error: tells peers, and waits for
/// them a little, so that the launcher does not kill them before they have said what happened.
/// Called on the main thread.
void set_farewell(std::function<void()> farewell);

/// From now on the process ends without MPI_Finalize, which would wait for the ranks that failed.
void mark_failed();

/// Throws CommError when an MPI call reports an error.
void check_mpi(int code, std::string_view call);

}  // namespace linerate::comm
