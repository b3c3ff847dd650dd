// A job in which one rank misbehaves: faults_test.py starts it under mpirun and reads what every
// rank says. MPI's calls are watched: no two threads at a time, none after MPI_Finalize.
//   fault_ranks FAULT CULPRIT TIMEOUT_S CHECKED ELEMENTS
// "group-FAULT": even and odd ranks work in a group each, and all meet in the end.
// "end-WAY": rank 1 ends in this way while it has a communicator; the others wait for it in a
// barrier, or exit well.
#include <mpi.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"

using namespace linerate;

namespace {

std::atomic<int> inside{0};
std::atomic<bool> finalized{false};

/// One call of MPI.
struct Call {
  explicit Call(const char* name) {
    if (finalized) std::fprintf(stderr, "VIOLATION: %s after MPI_Finalize\n", name);
    if (++inside > 1) std::fprintf(stderr, "VIOLATION: %s beside another thread's call\n", name);
  }
  ~Call() { --inside; }
};

}  // namespace

// MPI's profiling interface: the library's calls come here.
#define WATCH(name, parameters, arguments) \
  extern "C" int MPI_##name parameters {   \
    const Call call(#name);                \
    return PMPI_##name arguments;          \
  }
WATCH(Isend, (const void* b, int n, MPI_Datatype t, int p, int g, MPI_Comm c, MPI_Request* r),
      (b, n, t, p, g, c, r))
WATCH(Irecv, (void* b, int n, MPI_Datatype t, int p, int g, MPI_Comm c, MPI_Request* r),
      (b, n, t, p, g, c, r))
WATCH(Test, (MPI_Request * r, int* f, MPI_Status* s), (r, f, s))
WATCH(Testsome, (int n, MPI_Request* r, int* c, int* i, MPI_Status* s), (n, r, c, i, s))
WATCH(Cancel, (MPI_Request * r), (r))
WATCH(Wait, (MPI_Request * r, MPI_Status* s), (r, s))
WATCH(Comm_free, (MPI_Comm * c), (c))
WATCH(Comm_dup, (MPI_Comm c, MPI_Comm* d), (c, d))

/// Not a call like the others: the library ends its thread inside, in a callback, before MPI does
/// anything; what the callback calls is watched.
extern "C" int MPI_Finalize() {
  const int code = PMPI_Finalize();
  finalized = true;
  return code;
}

namespace {

std::unique_ptr<comm::Communicator> global;  // destroyed after the exit handler

std::vector<float> memory(8'000'000, 1.0f);

/// What rank 1 does; the others go on.
void end(const std::string& way, std::unique_ptr<comm::Communicator>& world) {
  const auto reduce = [&] {
    return world->all_reduce(comm::buffer(memory), comm::Reduce::sum, "grad");
  };
  if (way == "exit0" || way == "exit_all") std::exit(0);
  if (way == "exit1") std::exit(1);
  if (way == "exit_thread") std::thread([] { std::exit(1); }).join();
  if (way == "static") {
    global = std::move(world);
    std::exit(0);
  }
  if (way == "leaked") {
    world.release();
    std::exit(0);
  }
  if (way == "exit_in_flight") {
    const comm::WorkPtr work = reduce();
    std::exit(0);
  }
  if (way == "exit_waiting") {  // another thread waits meanwhile, and must not act on the exit
    std::thread([&] { reduce()->wait(); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::exit(1);
  }
  if (way == "action") {
    const comm::WorkPtr work = world->barrier("early");
    work->on_done([] { std::exit(1); });
    std::this_thread::sleep_for(std::chrono::seconds(30));
  }
  if (way == "finalize_live" || way == "finalize_all") {
    MPI_Finalize();
    std::exit(0);
  }
  if (way == "finalize_after") {
    world.reset();
    MPI_Finalize();
    std::exit(0);
  }
  if (way == "destroy_in_flight") {
    std::thread late([&] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
    const comm::WorkPtr work = reduce();
    world.reset();
    late.join();
    std::exit(work->done() ? 0 : 9);
  }
  if (way == "terminate") std::thread([] { throw 1; }).join();
  if (way == "abort") std::abort();
}

/// Rank 1, or all ranks, end in this way.
void run_to_end(const std::string& way) {
  if (way == "finalize_all" || way == "finalize_after") {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  }
  auto world = comm::make_world({.timeout = Duration{10}});
  world->barrier("start")->wait();
  const bool all = way.ends_with("_all") || way == "static" || way == "leaked" ||
                   way == "finalize_after" || way == "destroy_in_flight";
  if (world->rank() == 1 || all) end(way, world);
  if (way == "action") world->barrier("early")->wait();
  if (way == "exit_in_flight" || way == "exit_waiting") {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));  // after the exit
    world->all_reduce(comm::buffer(memory), comm::Reduce::sum, "grad")->wait();
  }
  world->barrier("never complete")->wait();
}

/// What the culprit does between two collectives.
void commit(const std::string& fault) {
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "kill") raise(SIGKILL);
  if (fault == "late") std::this_thread::sleep_for(std::chrono::seconds(60));
  if (fault == "throw") throw InputError("weights.bin", "truncated");
}

/// Returns whether this rank is the culprit.
bool run(std::string fault, int culprit, double timeout, bool checked, std::int64_t elements) {
  const auto world = comm::make_world({.checked = checked, .timeout = Duration{timeout}});
  const std::string prefix = "group-";
  std::unique_ptr<comm::Communicator> group;
  if (fault.starts_with(prefix)) {
    fault.erase(0, prefix.size());
    group = world->split(world->rank() % 2, -world->rank(), "parity");
  }
  comm::Communicator& used = group ? *group : *world;
  std::vector<float> x(static_cast<std::size_t>(elements) + 1);
  for (int k = 0; k < 8; ++k) {
    const bool odd = k == 4 && world->rank() == culprit;
    if (odd) commit(fault);
    if (odd && fault == "leave") return true;
    const bool longer = odd && fault == "mismatch";
    used.all_reduce(
            comm::buffer(std::span(x).first(static_cast<std::size_t>(elements + (longer ? 1 : 0)))),
            comm::Reduce::sum, "grad " + std::to_string(k))
        ->wait();
  }
  if (group) world->barrier("end")->wait();
  if (world->rank() == culprit && fault == "stop-late") raise(SIGSTOP);
  return world->rank() == culprit;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string fault = argv[1], ends = "end-";
  try {
    if (fault.starts_with(ends)) {
      run_to_end(fault.substr(ends.size()));
      return 0;
    }
    const bool culprit = run(fault, std::stoi(argv[2]), std::stod(argv[3]),
                             std::string(argv[4]) == "checked", std::stoll(argv[5]));
    return culprit && fault == "fail-late" ? 3 : 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "said: %s\n", e.what());
    return e.exit_code();
  }
}
