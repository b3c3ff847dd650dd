// The conformance suite under mpirun: every rank runs every test, in the same order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/back_end_suite.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"

namespace linerate::comm {

std::vector<int> numbers_of_ranks(std::vector<int>) { return {0}; }
void on_ranks(int, void (*run)(Communicator&), const CommunicatorOptions& options) {
  run(*make_world({.checked = options.checked,
                   .timeout = options.timeout,
                   .start_timeout = options.start_timeout}));
}

namespace {

/// Twice the memory that is needed must be free, on rank 0's word, so that all ranks run it or
/// none.
TEST(MpiLarge, MoreThanAnIntOfBytes) {
  const auto world = make_world({.checked = true, .timeout = Duration{200}});
  std::int64_t enough = suite::available_memory() > 2 * world->size() * suite::kHuge;
  world->broadcast(buffer(enough), 0, "enough memory")->wait();
  if (world->size() > 2 || enough == 0) GTEST_SKIP() << "needs 2 ranks and 8.6 GB of free memory";
  suite::more_than_an_int_of_bytes(*world);
}

TEST(MakeWorld, OfAnotherSizeIsAnInputErrorWithBothNumbers) {
  const int size = make_world()->size();
  const std::string more = std::to_string(size + 1);
  EXPECT_THAT([&] { static_cast<void>(make_world({.expected_size = size + 1})); },
              ::testing::ThrowsMessage<InputError>("ranks: expected a job of " + more + ", found " +
                                                   std::to_string(size) +
                                                   "; start it with: mpirun -n " + more + " ..."));
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
