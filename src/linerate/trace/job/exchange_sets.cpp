#include "linerate/trace/job/exchange_sets.hpp"

#include "linerate/core/index.hpp"
#include "linerate/trace/job/bucket_limits_found.hpp"

namespace linerate::trace {

bool may_be_gradients(std::optional<DType> type) {
  return type != DType::i32 && type != DType::i64;
}

std::map<std::int32_t, std::vector<std::size_t>> all_reduces_by_step(const RankActivity& rank) {
  std::map<std::int32_t, std::vector<std::size_t>> steps;
  for (const std::size_t i : in_order_of_issue(rank)) {
    const Communication& c = rank.communications[i];
    if (c.step >= 0 && c.op == CommOp::all_reduce && c.gradients && c.bytes > 0)
      steps[c.step].push_back(i);
  }
  return steps;
}

std::int64_t carried_bytes(std::int64_t sent, std::optional<DType> type, DType gradients) {
  return sent / (type ? size_of(*type) : size_of(gradients)) * size_of(gradients);
}

/// limits_of() finds which exchanges of a step are buckets. Walking along the gradients once more,
/// by the bucket's bytes, gives the range of each.
std::vector<std::optional<GradientRange>> gradients_of_exchanges(const Job& job,
                                                                 const RankActivity& rank) {
  std::vector<std::optional<GradientRange>> ranges(rank.communications.size());
  if (job.gradients.empty()) return ranges;
  std::vector<std::int64_t> gradients;
  for (const GradientRecord& g : job.gradients) gradients.push_back(g.elements * size_of(g.dtype));
  for (const auto& [step, positions] : all_reduces_by_step(rank)) {
    std::vector<std::int64_t> bytes;
    for (const std::size_t i : positions)
      bytes.push_back(carried_bytes(rank.communications[i].bytes, rank.communications[i].dtype,
                                    job.gradients.front().dtype));
    std::vector<std::size_t> kept;
    if (!limits_of(gradients, bytes, kept)) continue;
    std::int32_t next = 0;
    for (const std::size_t k : kept) {
      GradientRange range{next, next};
      for (std::int64_t sum = 0; sum < bytes[k]; ++next) sum += gradients[to_index(next)];
      range.last = next - 1;
      ranges[positions[k]] = range;
    }
  }
  return ranges;
}

}  // namespace linerate::trace
