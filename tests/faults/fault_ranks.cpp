// A job in which one rank misbehaves: faults_test.py starts it under mpirun and reads what every
// rank says.
//   fault_ranks FAULT CULPRIT TIMEOUT_S CHECKED ELEMENTS
// "group-FAULT": even and odd ranks work in a group each, and all meet in the end.
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"

using namespace linerate;

namespace {

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
  try {
    const bool culprit = run(argv[1], std::stoi(argv[2]), std::stod(argv[3]),
                             std::string(argv[4]) == "checked", std::stoll(argv[5]));
    return culprit && std::string(argv[1]) == "fail-late" ? 3 : 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "said: %s\n", e.what());
    return e.exit_code();
  }
}
