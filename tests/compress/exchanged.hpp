// The ranks of a parameter that take the two-phase exchange, in one process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/host_ops.hpp"

namespace linerate::compress {

/// What a rank has of the tensor.
struct RankOfExchange {
  TwoPhase& tensor;
  Keys keys;
  std::span<float> values;    // its gradient, then the mean
  std::span<float> residual;  // empty: none is kept
};

inline void exchange_tensor(const Compressor& compressor,
                            const std::vector<RankOfExchange>& ranks) {
  const auto count = static_cast<int>(ranks.size());
  const Shape shape{static_cast<std::int64_t>(ranks.front().values.size()), 1};
  const BucketLayout bucket = layout_of(compressor, {&shape, 1}, -1, "a test's");
  const TwoPhaseLayout chunks = two_phase_layout_of(compressor, bucket, count);
  std::vector<TensorMethod> methods;
  for (int r = 0; r < count; ++r) methods.push_back({"a test's", &compressor, true, r, count});
  std::vector<TwoPhaseExchange<HostOps>> exchanges;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    exchanges.emplace_back(methods[r], bucket, chunks);
    exchanges[r].add(0, ranks[r].tensor, ranks[r].keys, "a tensor");
  }
  const auto block = static_cast<std::size_t>(chunks.block_bytes);
  std::vector<std::byte> owners(ranks.size() * block);
  std::vector<std::vector<std::byte>> sent(ranks.size(), owners), arrived = sent;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    exchanges[r].encode({{ranks[r].values}, {ranks[r].residual}}, sent[r]);
    for (std::size_t owner = 0; owner < ranks.size(); ++owner)
      std::copy_n(sent[r].data() + owner * block, block, arrived[owner].data() + r * block);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) exchanges[r].reduce(arrived[r], owners);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    exchanges[r].finish(owners, {{ranks[r].values}, {}});
}

/// The ranks of one parameter, as training has them.
class RanksOfTensor {
 public:
  /// `saved`: the states of as many ranks as saved them; none: they begin.
  RanksOfTensor(const Compressor& compressor, const std::string& label, bool two_phase, int ranks,
                const Shape& shape, const std::vector<CompressionState>& saved = {})
      : compressor_(compressor), n_(static_cast<std::size_t>(shape.elements)) {
    for (int r = 0; r < ranks; ++r) {
      CompressionState own = state_for(r, ranks, saved);
      tensors_.emplace_back("g", shape, saved.empty() ? CompressedTensorState{} : own.tensors["g"]);
      tensors_.back().use({label, &compressor, two_phase, r, ranks});
    }
  }

  /// Through the owners; expects that all ranks get the same mean, and returns it.
  std::vector<float> step(std::vector<std::vector<float>> gradients, std::int64_t number) {
    std::vector<RankOfExchange> exchange;
    for (std::size_t r = 0; r < tensors_.size(); ++r) {
      CodedTensor& one = tensors_[r];
      one.begin_step(3, number, static_cast<int>(r), gradients[r]);
      exchange.push_back({one.two_phase(), one.keys(), gradients[r], one.next_residual()});
    }
    exchange_tensor(compressor_, exchange);
    for (std::size_t r = 0; r < tensors_.size(); ++r) {
      EXPECT_EQ(gradients[r], gradients[0]) << "ranks differ";
      tensors_[r].keep();
    }
    return gradients[0];
  }

  std::vector<CompressionState> save() const {
    std::vector<CompressionState> parts;
    for (const CodedTensor& tensor : tensors_) parts.push_back({1, {{"g", tensor.state()}}});
    return parts;
  }

  /// What is owed to the mean of gradients, by element: the ranks' mean and the owners' part.
  std::vector<double> owed() const {
    std::vector<double> sum(n_);
    std::size_t at = 0;
    for (const CodedTensor& tensor : tensors_) {
      const CompressedTensorState s = tensor.state();
      for (std::size_t i = 0; i < s.residual.size(); ++i)
        sum[i] += s.residual[i] / static_cast<double>(tensors_.size());
      for (const SavedField& field : s.two_phase.server)
        if (field.name == kServerResidual)
          for (const float x : floats_in(field.bytes)) sum.at(at++) += x;
    }
    return sum;
  }

 private:
  const Compressor& compressor_;
  std::size_t n_;
  std::vector<CodedTensor> tensors_;
};

}  // namespace linerate::compress
