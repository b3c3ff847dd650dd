#include "linerate/plan/kept_bytes.hpp"

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/registry.hpp"

namespace linerate::plan {
namespace {

/// `two_phase`: with what the owner of the largest part keeps of it.
std::int64_t kept_by(const compress::Compressor& compressor, bool two_phase, const doc::Plan& plan,
                     const doc::TaskGraph& graph, const doc::Payload& bucket) {
  std::int64_t bytes = 0;
  for (std::int32_t m = bucket.begin; m < bucket.end; ++m) {
    const auto position = to_index(graph.members[to_index(m)]);
    const doc::GradientShape& shape = plan.gradient_shapes.at(position);
    bytes += compress::kept_bytes(compressor, {shape.elements, shape.rows});
    if (two_phase)
      bytes += compress::kept_bytes(
          compressor, {compress::cut_into_chunks(shape.elements, plan.ranks).front().elements, 1});
  }
  return bytes;
}

}  // namespace

std::int64_t kept_bytes(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  if (task.kind != doc::TaskKind::encode || !doc::is_coding(plan, task)) return 0;
  const doc::Component& operation = plan.operations[to_index(task.operation)];
  const bool is_compressor = is(operation, Extra::compressor);
  const auto step = is_compressor ? compress::CodingStep::of(operation) : compress::CodingStep{};
  if (step.round > 0) return 0;
  const auto compressor = is_compressor ? compress::make_compressor(step.compressor) : nullptr;
  std::int64_t bytes = 0;
  for (std::int32_t i = task.first; i <= task.last; ++i) {
    const doc::Payload& bucket = graph.payloads[to_index(i)];
    bytes += compressor ? kept_by(*compressor, step.two_phase, plan, graph, bucket)
                        : bucket.elements * size_of(bucket.dtype);
  }
  return bytes;
}

}  // namespace linerate::plan
