// Codecs over tensors code a bucket in one call. How it is cut into parts changes no bit. The
// memory that a call takes is bounded, because with `bulk` a bucket is the whole model.
#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>

#include "compress/expectation.hpp"
#include "compress/inputs.hpp"
#include "compress/rank_group.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"
#include "torch_adapter/host_reads.hpp"
#include "torch_codecs/bounds.hpp"

namespace linerate::torch_codecs {
namespace {

using namespace compress;

constexpr int kRanks = 2;

/// Follows what this thread allocates.
class Memory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    now_ += bytes;
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t most() const { return most_; }

 private:
  std::int64_t now_ = 0, most_ = 0;
};

/// The most bytes that `work` had allocated at a time.
std::int64_t most_bytes_of(const std::function<void()>& work) {
  const auto memory = std::make_shared<Memory>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  work();
  return memory->most();
}

/// Tensors of a bucket on a rank that exchanges with itself as if it were two.
class Bucket {
 public:
  Bucket(const std::string& strategy, const std::vector<Shape>& shapes, int phase = -1)
      : compressor_(made(strategy)), keeps_(keeps_residual(*compressor_)), phase_(phase) {
    for (const Shape& shape : shapes) {
      if (rounds_for(shape).empty()) continue;
      shapes_.push_back(shape);
      codecs_.push_back(make_tensor_codec(doc::parse_component(strategy), shape, at::kCPU));
      places_.push_back({elements_, shape.elements});
      elements_ += shape.elements;
    }
    const auto n = static_cast<std::size_t>(elements_);
    values_ = at::tensor(noise(n, 1));
    means_ = at::zeros({elements_});
    if (keeps_) residual_ = at::tensor(noise(n, 2)), next_ = at::zeros({elements_});
  }

  std::int64_t elements() const { return elements_; }
  /// 0 if none of the tensors is coded.
  std::size_t rounds() const { return shapes_.empty() ? 0 : rounds_for(shapes_.front()).size(); }

  /// Where ranks' payloads lie: room for them is the exchange's.
  void begin(std::size_t round) {
    std::vector<std::int64_t> bytes;
    for (const Shape& shape : shapes_) bytes.push_back(rounds_for(shape)[round].bytes);
    const std::int64_t all = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    has_sizes_ = has_size(rounds_for(shapes_.front())[round]);
    const std::int64_t sizes = has_sizes_ ? kPartSizeBytes * std::ssize(bytes) : 0;
    room_ = at::zeros({all + sizes}, at::kByte);
    payloads_ = has_sizes_ ? std::vector<at::Tensor>() : room_.split_with_sizes(bytes);
    blocks_ = at::zeros({has_sizes_ ? kRanks : 0, all + sizes}, at::kByte);
  }
  void encode(std::size_t round, std::int64_t together = kMostTogether) {
    TensorOps::Sending tensors{values_, residual_, next_, places_, payloads_, {}, {}, {}};
    for (std::size_t t = 0; t < codecs_.size(); ++t) {
      tensors.keys.push_back(keys_of(1, static_cast<int>(t)));
      tensors.codecs.push_back(codecs_[t].get());
    }
    TensorOps::Block block{room_};
    if (has_sizes_) tensors.block = &block;
    tensors.phase = phase_;
    tensors.together = together;
    codecs_.front()->encode_bucket(static_cast<int>(round), tensors);
  }
  void exchange() {
    if (has_sizes_) blocks_.copy_(room_);
  }
  void decode(std::size_t round, std::int64_t together = kMostTogether) {
    TensorOps::Arriving tensors{means_, places_, {}, {}};
    TensorOps::Block block{blocks_};
    if (has_sizes_) tensors.block = &block;
    tensors.of_ranks = kRanks;
    tensors.together = together;
    const bool is_sum = rounds_for(shapes_.front())[round].combine == Combine::sum;
    for (std::size_t t = 0; t < codecs_.size(); ++t) {
      tensors.codecs.push_back(codecs_[t].get());
      if (has_sizes_) continue;
      const bool is_short = codecs_[t]->sent() >= 0;
      const at::Tensor sent =
          is_short ? payloads_[t].narrow(0, 0, codecs_[t]->sent()) : payloads_[t];
      tensors.arrived.push_back({std::vector<at::Tensor>(is_sum ? 1 : kRanks, sent), kRanks, {}});
    }
    codecs_.front()->decode_bucket(static_cast<int>(round), tensors);
  }

  /// One that counts.
  void step(std::int64_t together = kMostTogether) {
    for (std::size_t round = 0; round < rounds(); ++round) {
      begin(round);
      encode(round, together);
      exchange();
      decode(round, together);
    }
    if (keeps_) residual_.copy_(next_);
    for (const auto& codec : codecs_) codec->keep();
  }

  const at::Tensor& damaged() const { return codecs_.front()->damaged(); }
  const at::Tensor& payloads() const { return room_; }
  const at::Tensor& means() const { return means_; }
  const at::Tensor& next() const { return next_; }

 private:
  std::vector<Round> rounds_for(const Shape& shape) const {
    return rounds_of(*compressor_, shape, phase_);
  }

  std::unique_ptr<const Compressor> compressor_;
  bool keeps_;
  int phase_;
  std::vector<Shape> shapes_;
  std::vector<std::unique_ptr<TensorCodec>> codecs_;
  std::vector<TensorOps::Place> places_;
  std::int64_t elements_ = 0;
  at::Tensor values_, means_, residual_, next_;
  bool has_sizes_ = false;
  at::Tensor room_, blocks_;
  std::vector<at::Tensor> payloads_;
};

class BucketOfCodecs : public testing::TestWithParam<Expectation> {};

/// Bytes an element of what is coded together, over the bucket's own arrays. The most is a sort of
/// i64 keys for sparse codecs, and random numbers with grids in f64 for the others.
constexpr double kMostToEncode = 60;
/// The same, of what two ranks sent.
constexpr double kMostToDecode = 56;

TEST_P(BucketOfCodecs, TakesAFewArraysOfMemory) {
  Bucket bucket(GetParam().strategy,
                {{1 << 19, 512}, {1 << 18, 512}, {30000, 300}, {1 << 17, 64}, {4096, 64}});
  std::int64_t encode = 0, decode = 0, in_turn = 0;
  for (std::size_t round = 0; round < bucket.rounds(); ++round) {
    bucket.begin(round);
    encode = std::max(encode, most_bytes_of([&] { bucket.encode(round); }));
    bucket.exchange();
    decode = std::max(decode, most_bytes_of([&] { bucket.decode(round); }));
  }
  constexpr Shape kEach = {1 << 18, 512};
  const std::vector<Shape> four(4, kEach);
  Bucket other(GetParam().strategy, four);
  for (std::size_t round = 0; round < other.rounds(); ++round) {
    const auto work = [&] {
      other.encode(round, kEach.elements);
      other.exchange();
      other.decode(round, kEach.elements);
    };
    other.begin(round);
    in_turn = std::max(in_turn, most_bytes_of(work));
  }
  const auto n = static_cast<double>(bucket.elements());
  const double to_encode = static_cast<double>(encode) / n,
               to_decode = static_cast<double>(decode) / n;
  std::printf("| `%s` | %.1f | %.1f |\n", GetParam().strategy.c_str(), to_encode, to_decode);
  EXPECT_LE(to_encode, kMostToEncode);
  EXPECT_LE(to_decode, kMostToDecode);
  // What the step leaves is as large as the bucket.
  const std::int64_t kept = std::ssize(four) * made(GetParam().strategy)->remembered_bytes(kEach);
  EXPECT_LE(static_cast<double>(in_turn - kept) / kEach.elements, kMostToEncode);
}

/// What a bucket's codecs made of it, to the bit where they are exact.
void expect_alike(const at::Tensor& a, const at::Tensor& b, double bound) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  if (bound == 0) {
    EXPECT_TRUE(at::equal(a, b));
  } else if (a.is_floating_point()) {
    EXPECT_LE((a - b).abs().max().item<double>(), bound * b.abs().max().item<double>());
  }
}

TEST_P(BucketOfCodecs, IsTheSameHoweverItIsCut) {
  const std::vector<Shape> shapes = {{5000, 50}, {4096, 64}, {9000, 90}, {4096, 64},
                                     {6561, 81}, {5003, 1},  {33000, 30}};
  std::vector<std::unique_ptr<Bucket>> cut;
  for (const std::int64_t together :
       {std::int64_t{1} << 24, std::int64_t{12000}, std::int64_t{1}}) {
    cut.push_back(std::make_unique<Bucket>(GetParam().strategy, shapes));
    for (int step = 0; step < 3; ++step) cut.back()->step(together);
    const double bound = bound_of(GetParam().strategy);
    expect_alike(cut.back()->payloads(), cut.front()->payloads(), bound);
    expect_alike(cut.back()->means(), cut.front()->means(), bound);
    expect_alike(cut.back()->next(), cut.front()->next(), bound);
  }
}

TEST(Waits, OfTheHostForValuesAreCounted) {
  const torch_adapter::HostReads waits;
  const at::Tensor x = at::ones({3});
  EXPECT_EQ(waits.count(), 0);
  EXPECT_EQ(x.sum().item<float>(), 3);
  EXPECT_EQ(at::nonzero(x).numel(), 3);
  EXPECT_EQ(waits.count(), 2);
}

/// The moments, each stage's tail, and the count: at most seven stages at a density of 1 %.
std::int64_t most_waits(const std::string& strategy) {
  return doc::parse_component(strategy).name == "sidco" ? 8 : 0;
}

TEST_P(BucketOfCodecs, NothingWaitsForValues) {
  for (const int phase : phases_of(*made(GetParam().strategy)))
    for (const Shape& shape : kShapesOfJobs) {
      Bucket one(GetParam().strategy, {shape}, phase);
      if (one.rounds() == 0) continue;
      const torch_adapter::HostReads waits;
      one.step();
      EXPECT_LE(waits.count(), most_waits(GetParam().strategy)) << shape.elements << " elements";
      EXPECT_FALSE(one.damaged().defined() && one.damaged().item<bool>());
    }
}

INSTANTIATE_TEST_SUITE_P(Registry, BucketOfCodecs, testing::ValuesIn(all_expectations()),
                         name_of_test);

}  // namespace
}  // namespace linerate::torch_codecs
