// Bounds of options. CLI11's own print the largest double as the upper end of theirs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace linerate::verbs {

/// "expected a number above 0, found 0"
CLI::Validator above_zero();
/// "expected a number from 0, found -1"
CLI::Validator from_zero();
/// "expected a number from 0 to 1, found 2"
CLI::Validator between(double least, double most);
/// "expected fp16 or bf16, found fp61; did you mean fp16?"
CLI::Validator one_of(const std::vector<std::string>& words);

/// Of steps, samples, ranks: no product of two of them leaves 64 bits. The product of two such
/// numbers is 10^18, and 64 bits hold 9 times that.
inline constexpr std::int64_t kMostCounted = 1'000'000'000;
/// More are no machine's, and LibTorch dies of starting them.
inline constexpr std::int64_t kMostThreads = 4096;
/// "expected a whole number from 1 to 4096, found 100000"
CLI::Validator count(std::int64_t least = 1, std::int64_t most = kMostCounted);

}  // namespace linerate::verbs
