// The conformance suite under mpirun: every rank runs every test, in the same order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/communicator_suite.hpp"
#include "comm/ending_suite.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"

namespace linerate::comm {
namespace {

class MpiSuite : public ::testing::TestWithParam<suite::Case> {};

TEST_P(MpiSuite, Holds) {
  const auto world = make_world({.checked = true, .timeout = Duration{60}});
  GetParam().run(*world);
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiSuite, ::testing::ValuesIn(suite::kCases),
                         [](const auto& one) { return std::string(one.param.name); });

/// Twice the memory that is needed must be free, on rank 0's word, so that all ranks run it or
/// none.
TEST(MpiLarge, MoreThanAnIntOfBytes) {
  const auto world = make_world({.checked = true, .timeout = Duration{200}});
  std::int64_t enough = suite::available_memory() > 2 * world->size() * suite::kHuge;
  world->broadcast(buffer(enough), 0, "enough memory")->wait();
  if (world->size() > 2 || enough == 0) GTEST_SKIP() << "needs 2 ranks and 8.6 GB of free memory";
  suite::more_than_an_int_of_bytes(*world);
}

TEST(MpiUnderALink, IsNoFaster) {
  const suite::UnderLink link(suite::kSlowLink);
  suite::is_no_faster_than_its_link(*make_world({.timeout = Duration{60}}));
}

TEST(MpiUnderALink, DoesAllThatItDoesWithoutOne) {
  const suite::UnderLink link(suite::kFastLink);
  for (const suite::Case& one : suite::kCases) {
    SCOPED_TRACE(one.name);
    one.run(*make_world({.checked = true, .timeout = Duration{60}}));
  }
}

TEST(MakeWorld, OfAnotherSizeIsAnInputErrorWithBothNumbers) {
  const int size = make_world()->size();
  const std::string more = std::to_string(size + 1);
  EXPECT_THAT([&] { static_cast<void>(make_world({.expected_size = size + 1})); },
              ::testing::ThrowsMessage<InputError>("ranks: expected a job of " + more + ", found " +
                                                   std::to_string(size) +
                                                   "; start it with: mpirun -n " + more + " ..."));
}

TEST(MakeWorld, RefusesTimesThatAreNone) {
  for (const double seconds : {0.0, -1.0, 1e-12, 1e30, std::nan(""), HUGE_VAL})
    EXPECT_THROW(static_cast<void>(make_world({.timeout = Duration{seconds}})), UsageError)
        << seconds;
}

TEST(MakeWorld, TheFirstWorksOnAfterASecondWasRefused) {
  const auto world = make_world({.timeout = Duration{60}});
  EXPECT_THROW(static_cast<void>(make_world()), UsageError);
  float one = 1;
  world->all_reduce(buffer(one), Reduce::sum, "after the refusal")->wait();
  EXPECT_EQ(one, static_cast<float>(world->size()));
}

}  // namespace
}  // namespace linerate::comm
