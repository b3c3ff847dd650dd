#include "linerate/core/keep_memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>

namespace linerate {
namespace {

/// Page faults of a step that takes, fills and frees four blocks of 20 MB (19,500 pages).
[[maybe_unused]] long faults_of_a_step() {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  {
    constexpr std::size_t kBytes = 20'000'000;
    std::unique_ptr<char[]> blocks[4];
    for (auto& block : blocks) {
      block = std::make_unique_for_overwrite<char[]>(kBytes);
      for (std::size_t i = 0; i < kBytes; i += 4096)
        static_cast<volatile char*>(block.get())[i] = 1;
    }
  }
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(KeepMemory, LaterStepsFaultNothingIn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
  GTEST_SKIP() << "another allocator";
#else
  ASSERT_TRUE(keep_freed_memory());
  EXPECT_GT(faults_of_a_step(), 15'000);
  EXPECT_LT(faults_of_a_step(), 100);
#endif
}

}  // namespace
}  // namespace linerate
