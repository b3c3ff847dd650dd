// MPI in this process: how it starts, and above all how it ends. MPI can be started once only, and
// MPI_Finalize waits for all ranks. So exits are hooked twice: on_exit() for a program that just
// returns, and an attribute of MPI_COMM_SELF for one that calls MPI_Finalize itself.
//
// Example: of three ranks rank 1 fails and exits with status 4. Ranks 0 and 2 return from main()
// and come to at_exit(). They meet by beats, hear that rank 1 failed, and leave by _exit(4). In
// MPI_Finalize they would wait for rank 1 for ever.
#include "linerate/comm/mpi/mpi_world.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "linerate/comm/launcher.hpp"
#include "linerate/comm/mpi/mpi_channel.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

std::atomic<bool> failed{false}, started{false}, silenced{false}, ended{false};
enum class World : std::uint8_t { none, being_made, made, quiet };
std::atomic<World> own_world{World::none};  // the one that this process has
bool started_here = false;

struct Hooks {
  std::function<bool(int status)> stopper;
  std::function<bool(bool succeeded)> parting;
};
/// Never destroyed: exit handlers use them.
Hooks& hooks() {
  static auto* const all = new Hooks;
  return *all;
}

/// Whether a thread of the world may call MPI: it makes the world, or it is the world's own.
bool world_calls_mpi() { return own_world == World::being_made || own_world == World::made; }

/// Ends the thread of the world that exists. A world that is being destroyed on another thread ends
/// its own. Returns whether no other thread calls MPI now and no collective was in flight.
bool end_world(int status) {
  if (own_world == World::being_made) return false;
  const bool clean = !hooks().stopper || hooks().stopper(status);
  for (int i = 0; i < 1000 && world_calls_mpi(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return clean;
}

/// Meets the other ranks before MPI_Finalize, or leaves without it. MPI_Finalize is a collective,
/// and with a failed or stopped rank it would wait for ever. If a rank dies while others are inside
/// it, mpirun itself can hang. (PMIx_server_finalize waits for the thread that has the unfinished
/// fence: 3 of 140 jobs with Open MPI 4.1.4.)
///
/// So ranks first meet by beats. After any failure every rank leaves without MPI_Finalize, and the
/// launcher ends the job because of the exit status.
void meet_or_leave(int status) {
  bool all_succeeded = false;
  try {
    const bool clean = end_world(status);
    std::fflush(nullptr);
    if (!world_calls_mpi()) {
      const bool succeeded = status == 0 && clean && !failed;
      all_succeeded = hooks().parting ? hooks().parting(succeeded) : succeeded;
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "waiting to exit: {}\n", e.what());
  }
  if (all_succeeded) return;
  std::fflush(nullptr);
  _exit(status != 0 ? status : 4);
}

void end_once(int status) {
  meet_or_leave(status);
  hooks().parting = nullptr;
  ended = true;
}

void at_exit(int status, void*) {
  if (ended) return;  // the program has called MPI_Finalize itself
  end_once(status);
  if (started_here) MPI_Finalize();
}

/// Runs when the program itself calls MPI_Finalize. That frees the attributes of MPI_COMM_SELF
/// before it does anything else (MPI 4.0, 11.10.4), on its caller's thread. It is the last moment
/// at which MPI can be called.
int at_finalize(MPI_Comm, int, void*, void*) {
  if (!ended) end_once(0);
  return MPI_SUCCESS;
}

void hook_exits() {
  static const bool once = [] {
    int key = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, nullptr),
              "MPI_Comm_create_keyval");
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
    return on_exit(at_exit, nullptr) == 0;
  }();
  static_cast<void>(once);
}

/// Whether the kernel lets this process read memory through process_vm_readv at all, here its own.
/// Containers may filter the call. (Open MPI sees a ban on reading other processes: it looks at
/// Yama's ptrace_scope and at user namespaces.)
bool can_read_memory() {
  std::uint64_t from = 1, to = 0;
  const iovec local{&to, sizeof to}, remote{&from, sizeof from};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof to;
}

/// Puts settings into the environment that MPI_Init reads. tools/mpirun sets the same, and the
/// user's own settings win. Open MPI must not yield when idle, because the kernel then gives the
/// core to a compute thread until the next tick (4 ms). Where the memory of others cannot be read,
/// Open MPI would print a line for every message that the kernel refuses.
void set_defaults() {
  for (const char* name : {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit"})
    setenv(name, "524288", 0);
  if (!can_read_memory()) setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

/// Initialises MPI at MPI_THREAD_SERIALIZED unless the program has done so. Throws CommError when
/// that is not available, when MPI was finalised, or after call_mpi_no_more().
void start_mpi() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0 || silenced)
    throw CommError(finalized != 0
                        ? "MPI was finalised in this process and cannot start again; make the "
                          "world before MPI_Finalize"
                        : "MPI cannot be used again in this process, because a collective failed "
                          "with messages half sent; start the job again");
  if (initialized == 0) {
    set_defaults();
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    started_here = true;
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    throw CommError(
        "expected MPI with at least MPI_THREAD_SERIALIZED, which the progress thread needs, found "
        "less; initialise MPI with that level, or use an MPI library built with threads");
  }
  hook_exits();
  started = true;
}

std::string message(std::chrono::steady_clock::duration limit) {
  const std::string rank =
      launcher_rank() ? fmt::format("rank {}: ", *launcher_rank()) : std::string();
  const std::string others = launcher_size() ? fmt::format(" of {}", *launcher_size()) : "";
  std::string text = fmt::format(
      "{}MPI: the job did not start within {}, because it waits for a rank{} that has not come "
      "this far, or is stopped or dead. Look at what each rank printed and at its process (ps). If "
      "ranks start slowly, raise the timeout",
      rank, format_time(std::chrono::duration<double>(limit).count()), others);
  for (const std::string& found : look_at_ranks()) text += "\n" + rank + found;
  return text;
}

/// A deadline for MPI_Init and the first collectives of a job. They wait for every rank, for ever
/// if one never starts. Unless the result is destroyed in time, prints the missing ranks on stderr
/// and ends the process with status 4. There is no milder way: MPI_Init can be neither cancelled
/// nor left, and no other thread may call MPI meanwhile.
[[nodiscard]] std::jthread start_deadline(std::chrono::steady_clock::duration limit) {
  return std::jthread([limit](const std::stop_token& in_time) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any over;
    over.wait_for(lock, in_time, limit, [] { return false; });
    if (in_time.stop_requested()) return;
    fmt::print(stderr, "{}\n", message(limit));
    std::fflush(nullptr);
    // The first exit makes the launcher end the others, who are about to say the same.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    _exit(4);
  });
}

std::unique_ptr<Transport> make_channel(const WorldOptions& options, Clock::duration timeout) {
  const Clock::duration limit = start_time(options.start_timeout, timeout, "MPI");
  OneWorld claim;
  const std::jthread deadline = start_deadline(limit);
  start_mpi();
  auto channel = make_mpi_channel(MPI_COMM_WORLD, timeout, std::move(claim));
  own_world = World::made;
  return channel;
}

}  // namespace

void set_parting(std::function<bool(bool)> f) { hooks().parting = std::move(f); }

void call_mpi_no_more() { silenced = true; }

void note_failure() { failed = true; }

bool may_call_mpi() { return !silenced && !ended; }

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), to_index(length)};
}

void check_mpi(int code, std::string_view call) {
  if (code != MPI_SUCCESS) throw CommError(fmt::format("{} failed: {}", call, error_text(code)));
}

OneWorld::OneWorld() {
  World none = World::none;
  if (!own_world.compare_exchange_strong(none, World::being_made))
    throw UsageError(
        "MPI: expected no other world in this process, found one that still exists; use "
        "that one, or destroy it on every rank first");
}

OneWorld::~OneWorld() {
  if (mine_) own_world = World::none;
}

bool have_mpi() { return true; }
bool mpi_in_use() { return started; }

std::unique_ptr<Communicator> make_world(const WorldOptions& options) {
  auto channel = make_channel(options, clock_time(options.timeout, "MPI: timeout"));
  // This comes after the channel exists, so that ranks part as after any failure. Rank 0 has then
  // printed what is wrong before another rank's exit makes the launcher end it.
  require_ranks(channel->size(), options.expected_size);
  if (channel->size() == 1 && !options.independent)
    if (const auto problem = lonely_rank_problem()) throw InputError("ranks", *problem);
  Stopper stop;
  auto world = queued(std::move(channel), options.checked, &stop);
  hooks().stopper = [stop](int status) {
    const std::optional<bool> clean = stop(status);
    World made = World::made;
    if (clean) own_world.compare_exchange_strong(made, World::quiet);
    return clean.value_or(true);
  };
  return world;
}

}  // namespace linerate::comm
