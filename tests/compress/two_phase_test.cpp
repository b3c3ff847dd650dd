#include "linerate/compress/two_phase.hpp"

#include <gmock/gmock.h>

#include <cstring>

#include "exchanged.hpp"
#include "inputs.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

/// All ranks of one tensor.
class TwoPhaseGroup {
 public:
  TwoPhaseGroup(const Compressor& compressor, std::int64_t n, int ranks)
      : compressor_(compressor), n_(static_cast<std::size_t>(n)) {
    for (int r = 0; r < ranks; ++r) {
      all_.emplace_back(compressor, n, ranks, r);
      residuals_.emplace_back(compressor.residual() == Residual::needed ? n_ : 0);
    }
  }

  std::vector<float> step(std::vector<std::vector<float>> gradients, std::uint64_t step) {
    std::vector<RankOfExchange> ranks;
    for (std::size_t r = 0; r < all_.size(); ++r)
      ranks.push_back({all_[r], keys_of(step, static_cast<int>(r)), gradients[r], residuals_[r]});
    exchange_tensor(compressor_, ranks);
    for (std::size_t r = 0; r < all_.size(); ++r) {
      EXPECT_EQ(gradients[r], gradients[0]) << "ranks differ";
      all_[r].keep();
    }
    return gradients[0];
  }

  /// (1/W) sum of e + s, by element.
  std::vector<double> pending() {
    std::vector<double> sum(n_);
    for (std::size_t r = 0; r < all_.size(); ++r) {
      for (std::size_t i = 0; i < residuals_[r].size(); ++i)
        sum[i] += residuals_[r][i] / static_cast<double>(all_.size());
      const std::span<const std::byte> bytes = all_[r].owed().bytes();
      std::vector<float> owed(bytes.size() / sizeof(float));
      if (!owed.empty()) std::memcpy(owed.data(), bytes.data(), bytes.size());
      const auto first = static_cast<std::size_t>(all_[r].chunks()[r].first);
      for (std::size_t i = 0; i < owed.size(); ++i) sum[first + i] += owed[i];
    }
    return sum;
  }

 private:
  const Compressor& compressor_;
  std::size_t n_;
  std::vector<TwoPhase> all_;
  std::vector<std::vector<float>> residuals_;
};

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
        TwoPhaseGroup group(*compressor, n, ranks);
        const auto size = static_cast<std::size_t>(n);
        std::vector<double> balance(size), magnitude(size, 1);
        for (std::uint64_t step = 0; step < 20; ++step) {
          std::vector<std::vector<float>> gradients;
          for (int r = 0; r < ranks; ++r)
            gradients.push_back(noise(size, random_key(step, static_cast<std::uint64_t>(r))));
          const std::vector<float> mean = group.step(gradients, step);
          const std::vector<double> pending = group.pending();
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
        const std::vector<double> pending = group.pending();
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
    TwoPhaseGroup two(*compressor, 20'003, ranks);
    EXPECT_EQ(two.step(gradients, 0), gathered.step(gradients, 0));
  }
}

TEST(TwoPhase, SummedAndSeveralRoundsAreRefused) {
  EXPECT_THROW(TwoPhase(*make_compressor({"fp16", {}}), 5000, 2, 0), UsageError);
}

}  // namespace
}  // namespace linerate::compress
