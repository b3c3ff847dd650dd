// The ranks of a job in one process: a codec and a residual each, and what travels between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/random.hpp"
#include "support/scalar_arithmetic.hpp"

namespace linerate::compress {

/// The compressor with the codecs that a program's suites are about: those of compress
/// (native_codecs.cpp) or those over tensors (torch_codecs/codecs_over_tensors.cpp).
std::unique_ptr<const Compressor> made(const std::string& strategy);
/// So many steps of a suite that takes thousands; fewer over tensors, whose operators take the
/// time.
std::uint64_t many_steps(std::uint64_t steps);
/// How far their means may be from the frozen ones, of the largest; 0: nothing differs, in any bit.
double frozen_bound(const std::string& strategy);

/// Made with its size, never grown: a sanitizer sees the first byte beyond.
using Payload = std::vector<std::byte>;

inline Keys keys_of(std::uint64_t step, int rank, std::uint64_t seed = 7) {
  const std::uint64_t shared = random_key(random_key(seed, step), 1);
  return {shared, random_key(shared, static_cast<std::uint64_t>(rank) + 1)};
}

/// The sum over ranks, in their order, as an all-reduce of `type` would make it.
inline Payload summed(const std::vector<Payload>& payloads, DType type) {
  Payload sum = payloads[0];
  const auto elements = sum.size() / static_cast<std::size_t>(size_of(type));
  for (std::size_t r = 1; r < payloads.size(); ++r)
    comm::reduce_into_scalar(sum.data(), sum.data(), payloads[r].data(), elements, type,
                             comm::Reduce::sum);
  return sum;
}

/// Without and with a residual, as far as the method allows either.
inline std::vector<bool> residual_choices(const Compressor& compressor) {
  if (compressor.residual() == Residual::optional) return {false, true};
  return {compressor.residual() == Residual::needed};
}
/// Every phase that a step may be in; -1, the caller knows none, comes first.
inline std::vector<int> phases_of(const Compressor& compressor) {
  std::vector<int> phases;
  for (int phase = -1; phase < compressor.phases().count(); ++phase) phases.push_back(phase);
  return phases;
}

class RankGroup {
 public:
  /// `compressor` outlives it, unless set_phase() is not called.
  RankGroup(const Compressor& compressor, const Shape& shape, int ranks, bool keeps_residual)
      : RankGroup(std::vector(static_cast<std::size_t>(ranks), &compressor), shape,
                  keeps_residual) {}
  /// Each rank with the codec of its own, by the rounds of the first one. Means of codecs of two
  /// kinds may differ.
  RankGroup(const std::vector<const Compressor*>& of_ranks, const Shape& shape, bool keeps_residual)
      : compressor_(of_ranks.front()),
        shape_(shape),
        rounds_(compressor_->rounds(shape)),
        n_(static_cast<std::size_t>(shape.elements)) {
    for (const Compressor* const one : of_ranks) {
      ranks_.push_back({rounds_.empty() ? nullptr : one->codec(shape),
                        std::vector<float>(keeps_residual ? n_ : 0), std::vector<float>(n_)});
      are_alike_ = are_alike_ && one == compressor_;
    }
  }

  /// Of the steps from here on. -1, as in the beginning: these ranks know no phases.
  void set_phase(int phase) {
    phase_ = phase;
    rounds_ = rounds_of(*compressor_, shape_, phase);
  }
  /// The phase of this step of training.
  void follow_phases(std::uint64_t step) {
    set_phase(compressor_->phases().of_step(static_cast<std::int64_t>(step)));
  }

  /// One step of all ranks; expects that all get the same mean, and returns it.
  std::vector<float> step(const std::vector<std::vector<float>>& gradients, std::uint64_t step) {
    std::vector<float> mean = step_without_end(gradients, step);
    for (Rank& rank : ranks_)
      if (rank.codec) rank.codec->keep();
    return mean;
  }

  /// The same up to keep() or drop().
  std::vector<float> step_without_end(const std::vector<std::vector<float>>& gradients,
                                      std::uint64_t step) {
    sent_.clear();
    if (rounds_.empty()) return dense_mean(gradients);
    for (int round = 0; round < std::ssize(rounds_); ++round) {
      encode(round, gradients, step);
      decode(round);
    }
    return mean(0);
  }

  void encode(int round, const std::vector<std::vector<float>>& gradients, std::uint64_t step) {
    const Round& of = rounds_[static_cast<std::size_t>(round)];
    std::vector<Payload> payloads;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Payload room(static_cast<std::size_t>(of.bytes), std::byte{0xcd});
      const std::size_t bytes = ranks_[r].codec->encode(
          round,
          {gradients[r], ranks_[r].residual, keys_of(step, static_cast<int>(r)),
           static_cast<int>(ranks_.size()), phase_},
          room);
      EXPECT_LE(bytes, room.size());
      EXPECT_TRUE(of.is_bound || bytes == room.size()) << bytes;
      payloads.emplace_back(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    sent_.push_back(std::move(payloads));
    arrived_ = of.combine == Combine::sum ? std::vector<Payload>{summed(sent_.back(), of.dtype)}
                                          : sent_.back();
  }

  /// Of what encode() sent last; means are written in the last round.
  void decode(int round) {
    for (int r = 0; r < std::ssize(ranks_); ++r) {
      decode_on(r, round);
      EXPECT_TRUE(round + 1 < std::ssize(rounds_) || !are_alike_ ||
                  std::memcmp(mean(r).data(), mean(0).data(), 4 * n_) == 0)
          << "rank " << r << " differs";
    }
  }

  void decode_on(int rank, int round) {
    const std::vector<std::span<const std::byte>> spans(arrived_.begin(), arrived_.end());
    std::vector<float>& own = ranks_[static_cast<std::size_t>(rank)].mean;
    std::fill(own.begin(), own.end(), 42.0f);
    codec(rank).decode(round, {spans, static_cast<int>(ranks_.size())},
                       round + 1 == std::ssize(rounds_) ? std::span(own) : std::span<float>());
  }

  const std::vector<Round>& rounds() const { return rounds_; }
  /// [round][rank], of the last step.
  const std::vector<std::vector<Payload>>& sent() const { return sent_; }
  /// What decode() has of encode(): all ranks' payloads, or their sum. A test may damage it.
  std::vector<Payload>& arrived() { return arrived_; }
  const std::vector<float>& mean(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].mean;
  }
  std::vector<float>& residual(int rank) { return ranks_[static_cast<std::size_t>(rank)].residual; }
  /// What is owed to the mean of gradients, by element.
  std::vector<double> owed() const {
    std::vector<double> sum(n_);
    for (const Rank& rank : ranks_)
      for (std::size_t i = 0; i < rank.residual.size(); ++i)
        sum[i] += rank.residual[i] / static_cast<double>(ranks_.size());
    return sum;
  }
  Codec& codec(int rank) { return *ranks_[static_cast<std::size_t>(rank)].codec; }
  /// Goes on with what another group's ranks keep.
  void take(RankGroup& other) {
    for (int r = 0; r < std::ssize(ranks_); ++r) {
      codec(r).load(other.codec(r).save());
      residual(r) = other.residual(r);
    }
  }

 private:
  std::vector<float> dense_mean(const std::vector<std::vector<float>>& gradients) const {
    std::vector<float> mean(n_);
    for (const auto& gradient : gradients)
      for (std::size_t i = 0; i < n_; ++i)
        mean[i] += gradient[i] / static_cast<float>(gradients.size());
    return mean;
  }
  struct Rank {
    std::unique_ptr<Codec> codec;
    std::vector<float> residual, mean;
  };
  const Compressor* compressor_;
  Shape shape_;
  int phase_ = -1;
  std::vector<Round> rounds_;
  std::size_t n_;
  std::vector<Rank> ranks_;
  bool are_alike_ = true;
  std::vector<std::vector<Payload>> sent_;
  std::vector<Payload> arrived_;
};

}  // namespace linerate::compress
