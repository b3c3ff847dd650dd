// A step of the two-phase exchange of one tensor between all ranks of a job, in one process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
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

}  // namespace linerate::compress
