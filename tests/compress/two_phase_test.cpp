#include "linerate/compress/two_phase.hpp"

#include <gmock/gmock.h>

#include "inputs.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

/// All ranks of one tensor; the payloads go where they belong.
class TwoPhaseGroup {
 public:
  TwoPhaseGroup(const Compressor& compressor, std::int64_t n, int ranks)
      : n_(static_cast<std::size_t>(n)), ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      all_.emplace_back(compressor, n, ranks, r, 512);
      const bool keeps = compressor.residual() == Residual::needed;
      residuals_.emplace_back(keeps ? n_ : 0);
    }
  }

  std::vector<float> step(const std::vector<std::vector<float>>& gradients, std::uint64_t step) {
    std::vector<Payload> owned;
    for (int owner = 0; owner < ranks_; ++owner) owned.push_back(at_owner(owner, gradients, step));
    std::vector<std::span<const std::byte>> spans;
    for (const Payload& payload : owned) spans.push_back(payload.bytes());
    std::vector<float> mean;
    for (TwoPhase& one : all_) {
      std::vector<float> own(n_, 42);
      one.finish(spans, own);
      if (mean.empty()) mean = own;
      EXPECT_EQ(own, mean) << "ranks differ";
      one.keep();
    }
    return mean;
  }

  /// (1/W) sum of e + s, of element i.
  double pending(std::size_t i) {
    double sum = 0;
    for (const auto& residual : residuals_)
      if (!residual.empty()) sum += residual[i] / static_cast<double>(ranks_);
    for (std::size_t r = 0; r < all_.size(); ++r) {
      const Chunk& chunk = all_[r].chunks()[r];
      const auto at = static_cast<std::int64_t>(i) - chunk.first;
      if (at >= 0 && at < chunk.elements && !all_[r].server_residual().empty())
        sum += all_[r].server_residual()[static_cast<std::size_t>(at)];
    }
    return sum;
  }

 private:
  Payload at_owner(int owner, const std::vector<std::vector<float>>& gradients,
                   std::uint64_t step) {
    const auto o = static_cast<std::size_t>(owner);
    if (all_[o].chunks()[o].elements == 0) return Payload(0);
    std::vector<Payload> arrived;
    for (std::size_t r = 0; r < all_.size(); ++r) {
      Payload room(all_[r].bound(owner));
      const Keys keys = keys_of(step, static_cast<int>(r));
      const std::size_t bytes =
          all_[r].encode(owner, {gradients[r], residuals_[r], keys, ranks_}, room.bytes());
      arrived.emplace_back(room.bytes().first(bytes));
    }
    std::vector<std::span<const std::byte>> spans;
    for (const Payload& payload : arrived) spans.push_back(payload.bytes());
    Payload room(all_[o].bound(owner));
    const std::size_t bytes = all_[o].reduce({spans, ranks_}, keys_of(step, owner), room.bytes());
    return Payload(room.bytes().first(bytes));
  }

  std::size_t n_;
  int ranks_;
  std::vector<TwoPhase> all_;
  std::vector<std::vector<float>> residuals_;
};

TEST(TwoPhase, ChunksCoverTheTensor) {
  for (const std::int64_t n : {0, 1, 31, 512, 513, 5003, 9000})
    for (const int ranks : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (const Chunk& chunk : cut_into_chunks(n, ranks, 512)) {
        EXPECT_EQ(chunk.first, next);
        next += chunk.elements;
        EXPECT_TRUE(chunk.elements % 512 == 0 || next == n) << "only the last is cut";
      }
      EXPECT_EQ(next, n);
    }
}

/// (1/W) sum of gradients = sum of means + (1/W) sum e + s at every element after 20 steps, odd W
/// and empty chunks among them (n = 700: two of 512 and 188).
TEST(TwoPhase, NothingIsLostBetweenWorkersAndServers) {
  for (const char* strategy : {"efsignsgd", "onebit", "onebit-adam(beta=0)"})
    for (const std::int64_t n : {700, 5003})
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
          for (std::size_t i = 0; i < size; ++i) {
            balance[i] -= mean[i];
            magnitude[i] += std::abs(mean[i]) + std::abs(group.pending(i));
            for (const auto& g : gradients) {
              balance[i] += g[i] / static_cast<double>(ranks);
              magnitude[i] += std::abs(g[i]);
            }
          }
        }
        // Each of the terms in `magnitude` is rounded by at most ranks + 4 operations a step.
        for (std::size_t i = 0; i < size; ++i)
          ASSERT_NEAR(balance[i], group.pending(i), (ranks + 4) * 0x1p-23 * magnitude[i])
              << strategy << ", " << ranks << " ranks, element " << i;
      }
}

/// A vote of one payload is that payload: the owners' votes arrive as they were cast.
TEST(TwoPhase, MajorityIsThatOfTheAllGather) {
  const auto compressor = make_compressor(doc::parse_component("signsgd"));
  for (const int ranks : {2, 3, 5}) {
    std::vector<std::vector<float>> gradients;
    for (int r = 0; r < ranks; ++r) gradients.push_back(noise(5003, static_cast<std::uint64_t>(r)));
    RankGroup gathered(*compressor, {5003, 1}, ranks, false);
    TwoPhaseGroup two(*compressor, 5003, ranks);
    EXPECT_EQ(two.step(gradients, 0), gathered.step(gradients, 0));
  }
}

TEST(TwoPhase, SummedAndSeveralRoundsAreRefused) {
  EXPECT_THROW(TwoPhase(*make_compressor({"fp16", {}}), 5000, 2, 0), UsageError);
}

}  // namespace
}  // namespace linerate::compress
