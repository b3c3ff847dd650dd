#include "linerate/core/keep_memory.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace linerate {
namespace {

/// The kernel's flags of the mapping that begins at this address; empty where there is none.
std::string flags_of_mapping(const void* begin) {
  std::ifstream maps("/proc/self/smaps");
  const std::string address = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(begin));
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    inside = inside || line.starts_with(address);
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

/// Kilobytes of the mapping at this address that stand in large pages. It may have merged with one
/// before it.
long large_kilobytes_of_mapping(const void* at) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    long kilobytes = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
      inside = begin <= address && address < end;
    if (inside && std::sscanf(line.c_str(), "AnonHugePages: %ld kB", &kilobytes) == 1)
      return kilobytes;
  }
  return 0;
}

TEST(LargePages, AreAskedForWhereTheyFit) {
  for (const char* needed : {"/proc/self/smaps", "/sys/kernel/mm/transparent_hugepage/enabled"})
    if (!std::filesystem::exists(needed)) GTEST_SKIP() << "no " << needed;
  constexpr std::size_t kLarge = 2 << 20, kBytes = 8 * kLarge;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  auto* aligned = reinterpret_cast<char*>((start + kLarge - 1) / kLarge * kLarge);
  prefer_large_pages(aligned + 1, kLarge);  // too short for one
  EXPECT_EQ(flags_of_mapping(memory).find(" hg"), std::string::npos);
  prefer_large_pages(aligned + 1, 3 * kLarge);  // room for two behind the first byte
  const std::string flags = flags_of_mapping(aligned + kLarge);
  munmap(memory, kBytes);
  EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
}

/// What stands in small pages keeps its values and moves to large ones, where the kernel can.
TEST(LargePages, TakeOverWhatWasTouched) {
  constexpr std::size_t kLarge = 2 << 20, kBytes = 4 * kLarge;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* bytes = static_cast<unsigned char*>(memory);
  for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<unsigned char>(i * 31 >> 7);
  CollapsedPages pages;
  pages.add(memory, kBytes);
  for (std::size_t i = 0; i < kBytes; ++i)
    ASSERT_EQ(bytes[i], static_cast<unsigned char>(i * 31 >> 7)) << i;
  const bool large = large_kilobytes_of_mapping(memory) > 0;
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  auto* const aligned = reinterpret_cast<void*>((start + kLarge - 1) / kLarge * kLarge);
  const bool possible = madvise(aligned, kLarge, 25) == 0;  // MADV_COLLAPSE, Linux 6.1
  munmap(memory, kBytes);
  if (!possible) GTEST_SKIP() << "this kernel moves nothing into large pages";
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
