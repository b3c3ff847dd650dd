// The cases of ending_suite.hpp under mpirun; ending_test.py starts a job for each.
#include <gtest/gtest.h>

#include "comm/ending_suite.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"

namespace linerate::comm {
namespace {

class MpiEnding : public ::testing::TestWithParam<suite::Ending> {};

TEST_P(MpiEnding, Holds) {
  const auto world = make_world({.checked = GetParam().checked,
                                 .timeout = GetParam().timeout(),
                                 .start_timeout = Duration{60}});
  GetParam().run(*world);
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiEnding, ::testing::ValuesIn(suite::kEndings),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace linerate::comm
