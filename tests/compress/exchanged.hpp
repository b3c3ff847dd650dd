// The ranks of a parameter in one process, as training codes it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/host_ops.hpp"

namespace linerate::compress {

/// What steps took in and gave out by element, and how far rounding may have moved it.
class Ledger {
 public:
  /// `each`: of an element's magnitude in a step.
  Ledger(std::size_t n, double each) : each_(each), balance_(n), magnitude_(n, 1), owed_(n) {}

  /// `owed`: after the step, to the mean of gradients.
  void add(const std::vector<std::vector<float>>& gradients, const std::vector<float>& mean,
           std::vector<double> owed) {
    const auto ranks = static_cast<double>(gradients.size());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      balance_[i] -= mean[i];
      magnitude_[i] += std::abs(mean[i]) + 2 * std::abs(owed[i]);
      for (const std::vector<float>& g : gradients) {
        balance_[i] += g[i] / ranks;
        magnitude_[i] += std::abs(g[i]) / ranks;
      }
    }
    owed_ = std::move(owed);
  }
  /// (1/W) sum of all gradients = sum of all means + what is owed.
  void expect_balanced() const {
    for (std::size_t i = 0; i < balance_.size(); ++i)
      ASSERT_NEAR(balance_[i], owed_[i], each_ * magnitude_[i]) << "element " << i;
  }

 private:
  double each_;
  std::vector<double> balance_, magnitude_, owed_;
};

/// By the two-phase exchange, or of one rank by its own payloads or dense.
class RanksOfTensor {
 public:
  /// `saved`: the states of as many ranks as saved them; none: they begin.
  RanksOfTensor(const Compressor& compressor, const std::string& label, bool two_phase, int ranks,
                const Shape& shape, const std::vector<CompressionState>& saved = {},
                bool is_dense = false)
      : shape_(shape) {
    for (int r = 0; r < ranks; ++r) {
      CompressionState own = state_for(r, ranks, saved);
      tensors_.emplace_back("g", shape, saved.empty() ? CompressedTensorState{} : own.tensors["g"]);
      methods_.push_back({label, &compressor, two_phase, r, ranks, is_dense});
      tensors_.back().use(methods_.back());
    }
  }

  /// Expects that all ranks get the same mean, and returns it.
  std::vector<float> step(std::vector<std::vector<float>> gradients, std::int64_t number) {
    const std::vector<float> dense = gradients[0];
    for (std::size_t r = 0; r < tensors_.size(); ++r)
      tensors_[r].begin_step(3, number, static_cast<int>(r), gradients[r]);
    if (methods_[0].is_dense)
      tensors_[0].take_dense(gradients[0] = dense);
    else if (methods_[0].two_phase)
      exchange(gradients);
    else
      send_alone(gradients[0]);
    for (std::size_t r = 0; r < tensors_.size(); ++r) {
      EXPECT_EQ(gradients[r], gradients[0]) << "ranks differ";
      tensors_[r].keep();
    }
    return gradients[0];
  }

  CodedTensor& tensor(std::size_t rank) { return tensors_[rank]; }
  std::vector<CompressionState> save() const {
    std::vector<CompressionState> parts;
    for (const CodedTensor& tensor : tensors_) parts.push_back({1, {{"g", tensor.state()}}});
    return parts;
  }

  /// What is owed to the mean of gradients, by element: the ranks' mean and the owners' part.
  std::vector<double> owed() const {
    std::vector<double> sum(static_cast<std::size_t>(shape_.elements));
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
  /// Gradients become the mean.
  void exchange(std::vector<std::vector<float>>& gradients) {
    const std::size_t ranks = tensors_.size();
    const BucketLayout bucket = layout_of(*methods_[0].compressor, {&shape_, 1}, -1, "a test's");
    const TwoPhaseLayout chunks =
        two_phase_layout_of(*methods_[0].compressor, bucket, methods_[0].ranks);
    std::vector<TwoPhaseExchange<HostOps>> exchanges;
    for (std::size_t r = 0; r < ranks; ++r) {
      exchanges.emplace_back(methods_[r], bucket, chunks);
      exchanges[r].add(0, tensors_[r].two_phase(), tensors_[r].keys(), "a tensor");
    }
    const auto block = static_cast<std::size_t>(chunks.block_bytes);
    std::vector<std::byte> owners(ranks * block);
    std::vector<std::vector<std::byte>> sent(ranks, owners), arrived = sent;
    for (std::size_t r = 0; r < ranks; ++r) {
      exchanges[r].encode({{gradients[r]}, {tensors_[r].next_residual()}}, sent[r]);
      for (std::size_t owner = 0; owner < ranks; ++owner)
        std::copy_n(sent[r].data() + owner * block, block, arrived[owner].data() + r * block);
    }
    for (std::size_t r = 0; r < ranks; ++r) exchanges[r].reduce(arrived[r], owners);
    for (std::size_t r = 0; r < ranks; ++r) exchanges[r].finish(owners, {{gradients[r]}, {}});
  }

  void send_alone(std::vector<float>& gradient) {
    const std::vector<Round> rounds = methods_[0].compressor->rounds(shape_);
    std::vector<float> mean(gradient.size());
    for (int round = 0; round < std::ssize(rounds); ++round) {
      std::vector<std::byte> room(
          static_cast<std::size_t>(rounds[static_cast<std::size_t>(round)].bytes));
      const std::span<const std::byte> sent(room.data(),
                                            tensors_[0].encode(round, gradient, 1, -1, room));
      const bool is_last = round + 1 == std::ssize(rounds);
      tensors_[0].decode(round, {{&sent, 1}, 1}, is_last ? std::span(mean) : std::span<float>());
    }
    gradient = mean;
  }

  Shape shape_;
  std::vector<TensorMethod> methods_;
  std::vector<CodedTensor> tensors_;
};

}  // namespace linerate::compress
