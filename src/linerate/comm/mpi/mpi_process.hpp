// MPI in this process: started once, ended once, and never left hanging. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <functional>
#include <string_view>

namespace linerate::comm {

/// Initialises MPI at MPI_THREAD_SERIALIZED unless the program has done so. Throws CommError when
/// that is not to be had.
void start_mpi();

/// True once start_mpi has succeeded.
bool mpi_started();

/// How this process parts from its peers when it exits; called on the main thread with whether it
/// succeeded, returns whether all of them did. Replaces the one before.
void set_parting(std::function<bool(bool succeeded)> parting);

/// From now on the process ends with an error and without MPI_Finalize.
void mark_failed();

/// Throws CommError when an MPI call reports an error.
void check_mpi(int code, std::string_view call);

}  // namespace linerate::comm
