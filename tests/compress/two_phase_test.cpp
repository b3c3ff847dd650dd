#include "linerate/compress/two_phase.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "exchanged.hpp"
#include "inputs.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

TEST(TwoPhase, ChunksCoverTheTensor) {
  for (const std::int64_t n : {0, 1, 31, 4096, 4097, 40'003, 72'000})
    for (const int ranks : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (const Chunk& chunk : cut_into_chunks(n, ranks)) {
        EXPECT_EQ(chunk.first, next);
        next += chunk.elements;
        EXPECT_TRUE(chunk.elements % kChunkMultiple == 0 || next == n) << "only the last is cut";
      }
      EXPECT_EQ(next, n);
    }
}

/// (1/W) sum of gradients = sum of means + (1/W) sum e + s at every element after 20 steps, odd W
/// among them, empty chunks, and one that is too small to be coded (8194: 4096, 4096 and 2).
TEST(TwoPhase, NothingIsLostBetweenWorkersAndServers) {
  for (const char* strategy : {"efsignsgd", "onebit", "onebit-adam(beta=0)"})
    for (const std::int64_t n : {8194, 20'003})
      for (const int ranks : {1, 2, 3, 4}) {
        const auto compressor = make_compressor(doc::parse_component(strategy));
        RanksOfTensor group(*compressor, strategy, true, ranks, {n, 1});
        const auto size = static_cast<std::size_t>(n);
        std::vector<double> balance(size), magnitude(size, 1);
        for (std::int64_t step = 0; step < 20; ++step) {
          std::vector<std::vector<float>> gradients;
          for (int r = 0; r < ranks; ++r)
            gradients.push_back(noise(
                size, random_key(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(r))));
          const std::vector<float> mean = group.step(gradients, step);
          const std::vector<double> pending = group.owed();
          for (std::size_t i = 0; i < size; ++i) {
            balance[i] -= mean[i];
            magnitude[i] += std::abs(mean[i]) + std::abs(pending[i]);
            for (const auto& g : gradients) {
              balance[i] += g[i] / static_cast<double>(ranks);
              magnitude[i] += std::abs(g[i]);
            }
          }
        }
        // Each of the terms in `magnitude` is rounded by at most ranks + 4 operations a step.
        const std::vector<double> pending = group.owed();
        for (std::size_t i = 0; i < size; ++i)
          ASSERT_NEAR(balance[i], pending[i], (ranks + 4) * 0x1p-23 * magnitude[i])
              << strategy << ", " << ranks << " ranks, element " << i;
      }
}

/// A vote of one payload is that payload: the owners' votes arrive as they were cast.
TEST(TwoPhase, MajorityIsThatOfTheAllGather) {
  const auto compressor = make_compressor(doc::parse_component("signsgd"));
  for (const int ranks : {2, 3, 5}) {
    std::vector<std::vector<float>> gradients;
    for (int r = 0; r < ranks; ++r)
      gradients.push_back(noise(20'003, static_cast<std::uint64_t>(r)));
    RankGroup gathered(*compressor, {20'003, 1}, ranks, false);
    RanksOfTensor two(*compressor, "signsgd", true, ranks, {20'003, 1});
    EXPECT_EQ(two.step(gradients, 0), gathered.step(gradients, 0));
  }
}

TEST(TwoPhase, SummedAndSeveralRoundsAreRefused) {
  EXPECT_THROW(TwoPhase(*make_compressor({"fp16", {}}), 5000, 2, 0), UsageError);
}

}  // namespace
}  // namespace linerate::compress
