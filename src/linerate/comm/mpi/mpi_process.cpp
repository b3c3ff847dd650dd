#include "linerate/comm/mpi/mpi_process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

std::atomic<bool> failed{false}, started{false};
bool started_here = false;
std::function<bool(bool)>& parting() {
  static auto* f = new std::function<bool(bool)>;  // never destroyed: exit handlers use it
  return *f;
}

/// MPI_Finalize is a collective: with a failed or stopped rank it would wait for ever, and with one
/// that dies while others are inside it, mpirun itself can hang (PMIx_server_finalize waits for the
/// thread that holds the unfinished fence: 3 of 140 jobs with Open MPI 4.1.4). So the ranks first
/// meet by means of their own; after any failure every one leaves without MPI_Finalize, and the
/// launcher ends the job because of the exit status.
void at_exit(int status, void*) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  const bool succeeded = status == 0 && !failed;
  std::fflush(nullptr);
  const bool all_succeeded = parting() ? parting()(succeeded) : succeeded;
  if (!all_succeeded) _exit(status != 0 ? status : 4);
  parting() = nullptr;
  if (started_here) MPI_Finalize();
}

/// Settings that must be in the environment before MPI_Init; tools/mpirun sets the same, and what
/// the user set wins.
void set_defaults() {
  constexpr std::array<std::array<const char*, 2>, 3> defaults = {{
      {"OMPI_MCA_btl_tcp_eager_limit", "524288"},
      {"OMPI_MCA_btl_tcp_rndv_eager_limit", "524288"},
      {"OMPI_MCA_mpi_yield_when_idle", "1"},
  }};
  for (const auto& [name, value] : defaults) setenv(name, value, 0);
}

}  // namespace

void start_mpi() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  int level = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    set_defaults();
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    started_here = true;
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    throw CommError(
        "MPI offers less than MPI_THREAD_SERIALIZED, which the progress thread needs; initialise "
        "MPI with that level, or use an MPI library built with threads");
  }
  static const bool registered = on_exit(at_exit, nullptr) == 0;
  static_cast<void>(registered);
  started = true;
}

bool mpi_started() { return started; }

void set_parting(std::function<bool(bool)> f) { parting() = std::move(f); }

void mark_failed() { failed = true; }

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommError(fmt::format("{} failed: {}", call,
                              std::string_view(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace linerate::comm
