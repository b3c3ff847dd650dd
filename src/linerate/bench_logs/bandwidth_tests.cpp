#include "linerate/bench_logs/bandwidth_tests.hpp"

#include <array>
#include <cctype>
#include <string>

#include "linerate/bench_logs/log_words.hpp"

namespace linerate::bench_logs {
namespace {

constexpr std::array kTests = {
    BandwidthTest{"all_reduce", Collective::all_reduce, true, false, false, BusFactor::twice},
    BandwidthTest{"reduce_scatter", Collective::reduce_scatter, true, false, true, BusFactor::once},
    BandwidthTest{"all_gather", Collective::all_gather, false, false, true, BusFactor::once},
    BandwidthTest{"alltoall", Collective::all_to_all, false, false, true, BusFactor::once, false},
    BandwidthTest{"broadcast", Collective::broadcast, false, true, false, BusFactor::one},
    BandwidthTest{"reduce", Collective::reduce, true, true, false, BusFactor::one},
    // Prints the operation that all-reduce would have, which it does not use.
    BandwidthTest{"sendrecv", std::nullopt, std::nullopt, false, false, BusFactor::one, false},
    BandwidthTest{"gather", std::nullopt, false, true, true, BusFactor::once},
    BandwidthTest{"scatter", std::nullopt, false, true, true, BusFactor::once},
    BandwidthTest{"hypercube", std::nullopt, false, false, true, BusFactor::once},
    BandwidthTest{"alltoallv", std::nullopt, false, false, true, BusFactor::once, false},
};

}  // namespace

std::span<const BandwidthTest> bandwidth_tests() { return kTests; }

const BandwidthTest* test_named(std::string_view name) {
  const std::string key = plain_word(name);
  for (const BandwidthTest& test : kTests)
    if (key == plain_word(test.name)) return &test;
  return key == "bcast" ? test_of(Collective::broadcast) : nullptr;
}

const BandwidthTest* test_of(Collective collective) {
  for (const BandwidthTest& test : kTests)
    if (test.collective == collective) return &test;
  return nullptr;
}

const BandwidthTest* test_in(std::string_view text) {
  const BandwidthTest* found = nullptr;
  for (std::size_t at = text.find("_perf"); at != std::string_view::npos;
       at = text.find("_perf", at + 1)) {
    std::size_t first = at;
    while (first > 0 && (std::isalpha(static_cast<unsigned char>(text[first - 1])) != 0 ||
                         text[first - 1] == '_'))
      --first;
    if (const BandwidthTest* test = test_named(text.substr(first, at - first))) found = test;
  }
  return found;
}

}  // namespace linerate::bench_logs
