#include "linerate/comm/mpi/one_world.hpp"

#include <atomic>

#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

std::atomic<bool> taken{false}, quiet{false};

}  // namespace

OneWorld::OneWorld() {
  if (taken.exchange(true))
    throw UsageError(
        "MPI: expected no other world in this process, found one that still exists; use "
        "that one, or destroy it on every rank first");
  quiet = false;
}

OneWorld::~OneWorld() {
  if (mine_) taken = false;
}

bool OneWorld::closing() { return taken && !quiet; }

void OneWorld::set_quiet() { quiet = true; }

}  // namespace linerate::comm
