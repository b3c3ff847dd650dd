#include <gtest/gtest.h>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "torch_adapter/back_end.hpp"

namespace linerate::torch_adapter {

void run_on(int n, const std::function<void(comm::Communicator&)>& f) {
  const auto world = comm::make_world({.checked = true, .timeout = Duration{60}});
  if (world->size() != n) GTEST_SKIP() << "for a job of " << n << " ranks";
  f(*world);
}

}  // namespace linerate::torch_adapter
