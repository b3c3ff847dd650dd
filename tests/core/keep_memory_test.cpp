#include "linerate/core/keep_memory.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>

namespace linerate {
namespace {

constexpr std::size_t kLarge = 2 << 20;

/// Memory that the kernel gives, and its first large page.
struct Mapping {
  explicit Mapping(std::size_t large_pages) : bytes(large_pages * kLarge) {
    if (memory == MAP_FAILED) throw std::bad_alloc();
    const auto start = reinterpret_cast<std::uintptr_t>(memory);
    aligned = reinterpret_cast<char*>((start + kLarge - 1) / kLarge * kLarge);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(memory, bytes); }

  std::size_t bytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* aligned;
};

/// What the kernel says under this name of the mapping at an address, which may have merged with
/// one before it; empty where there is none.
std::string kernels_words(const void* at, const std::string& name) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
      inside = begin <= address && address < end;
    if (inside && line.starts_with(name + ":")) return line.substr(name.size() + 1);
  }
  return "";
}

TEST(LargePages, AreAskedForWhereTheyFit) {
  for (const char* needed : {"/proc/self/smaps", "/sys/kernel/mm/transparent_hugepage/enabled"})
    if (!std::filesystem::exists(needed)) GTEST_SKIP() << "no " << needed;
  const Mapping of(8);
  prefer_large_pages(of.aligned + 1, kLarge);  // too short for one
  EXPECT_THAT(kernels_words(of.memory, "VmFlags"), testing::Not(testing::HasSubstr(" hg")));
  prefer_large_pages(of.aligned + 1, 3 * kLarge);  // room for two behind the first byte
  EXPECT_THAT(kernels_words(of.aligned + kLarge, "VmFlags"), testing::HasSubstr(" hg"));
}

/// What stands in small pages keeps its values and moves to large ones, where the kernel can.
TEST(LargePages, TakeOverWhatWasTouched) {
  const Mapping of(4);
  auto* bytes = static_cast<unsigned char*>(of.memory);
  for (std::size_t i = 0; i < of.bytes; ++i) bytes[i] = static_cast<unsigned char>(i * 31 >> 7);
  CollapsedPages pages;
  pages.add(of.memory, of.bytes);
  for (std::size_t i = 0; i < of.bytes; ++i)
    ASSERT_EQ(bytes[i], static_cast<unsigned char>(i * 31 >> 7)) << i;
  const bool large = std::atol(kernels_words(of.memory, "AnonHugePages").c_str()) > 0;
  if (madvise(of.aligned, kLarge, 25) != 0)  // MADV_COLLAPSE, Linux 6.1
    GTEST_SKIP() << "this kernel moves nothing into large pages";
  EXPECT_TRUE(large);
}

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
