#include "linerate/core/large_pages.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
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

}  // namespace
}  // namespace linerate
