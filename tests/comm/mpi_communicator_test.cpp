// The conformance suite under mpirun: every rank runs every test, in the same order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator_suite.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"

namespace linerate::comm {
namespace {

class MpiSuite : public ::testing::TestWithParam<suite::Case> {};

TEST_P(MpiSuite, Holds) {
  const auto world = make_world({.checked = true, .timeout = Seconds{60}});
  GetParam().run(*world);
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiSuite, ::testing::ValuesIn(suite::kCases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(MakeWorld, OfAnotherSizeIsACommErrorWithBothNumbers) {
  const int size = make_world()->size();
  try {
    make_world({.expected_size = size + 1});
    FAIL() << "no error";
  } catch (const CommError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("has " + std::to_string(size) + " rank"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr(std::to_string(size + 1) + " were asked for"));
  }
}

}  // namespace
}  // namespace linerate::comm
