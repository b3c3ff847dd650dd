// Private: the tests of nccl-tests, by name and by what their rows look like.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "linerate/core/collective.hpp"

namespace linerate::bench_logs {

/// busbw = algbw * factor (nccl-tests, doc/PERFORMANCE.md): 2(n-1)/n, (n-1)/n, or 1.
enum class BusFactor : std::uint8_t { twice, once, one };

/// What the rows of a test look like. Tests without a Collective are listed so that their rows are
/// recognised and left out, and not taken for those of another test.
struct BandwidthTest {
  std::string_view name;
  std::optional<Collective> collective;
  std::optional<bool> reduces;  // absent: some versions print an operation
  bool rooted;
  bool splits;  // `count` is one rank's piece: size / (count * element) = n
  BusFactor factor;
  bool checks_in_place = true;  // false: "N/A" next to a number out of place
};

std::span<const BandwidthTest> bandwidth_tests();
/// By "all_reduce", "alltoall", "sendrecv"...; nullptr for other words.
const BandwidthTest* test_named(std::string_view name);
const BandwidthTest* test_of(Collective collective);
/// "all_reduce_perf" or "all_gather_perf_mpi" anywhere in the text; nullptr if there is none.
const BandwidthTest* test_in(std::string_view text);

}  // namespace linerate::bench_logs
