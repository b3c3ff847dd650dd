// `rehearse --real codec` over a Plan that casts. Every cast reads and writes the same two arrays,
// so that it costs what the training job's cast costs. The collectives have other memory
// (PayloadArena), so no value matters here.
#include "linerate/exec/cast_operation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/compress/cast.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/exec/payload_arena.hpp"

namespace linerate::exec {
namespace {

using doc::Task;
using doc::TaskKind;

bool codes(const Task& task) {
  return task.kind == TaskKind::encode || task.kind == TaskKind::decode;
}

DType wire_of(const doc::Plan& plan, const Task& task) {
  const std::string* to = plan.operations[to_index(task.operation)].find("to");
  LINERATE_CHECK(to != nullptr, "a cast without a type");
  return parse_dtype(*to);
}

/// The dense side: the bucket that the task encodes or decodes.
const doc::Payload& bucket_of(const doc::TaskGraph& graph, const Task& task) {
  return graph.payloads[to_index(task.first)];
}

}  // namespace

CastOperation::CastOperation(const doc::Plan& plan) : plan_(plan) {
  std::int64_t dense = 0, encoded = 0;
  for (const doc::TaskGraph& graph : plan.variants)
    for (const Task& task : graph.tasks) {
      if (!codes(task)) continue;
      if (plan.operation_name(task) != doc::kCast)
        throw on_every_rank(UsageError(
            fmt::format("plan \"{}\": the operation \"{}\" is given only by its numbers, so there "
                        "is nothing to run; leave out --real codec, or use wire=fp16 or wire=bf16",
                        plan.strategy, plan.operation_name(task))));
      const doc::Payload& bucket = bucket_of(graph, task);
      const DType wire = wire_of(plan, task);
      if (!compress::can_cast(bucket.dtype, wire))
        throw on_every_rank(UsageError(fmt::format(
            "plan \"{}\": a cast of {} to {} cannot run here (f32 to f16 and bf16 can); leave out "
            "--real codec",
            plan.strategy, name_of(bucket.dtype), name_of(wire))));
      dense = std::max(dense, bucket.bytes());
      encoded = std::max(encoded, bucket.padded * size_of(wire));
    }
  dense_ = zeros(dense);
  encoded_ = zeros(encoded);
}

void CastOperation::run(const doc::TaskGraph& graph, const Task& task) {
  const doc::Payload& bucket = bucket_of(graph, task);
  const DType wire = wire_of(plan_, task);
  const auto elements = to_index(bucket.elements);
  if (task.kind == TaskKind::encode)
    compress::cast(dense_.get(), bucket.dtype, encoded_.get(), wire, elements);
  else
    compress::cast(encoded_.get(), wire, dense_.get(), bucket.dtype, elements);
}

}  // namespace linerate::exec
