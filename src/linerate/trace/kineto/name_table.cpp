// What the names of events mean, through every era of PyTorch, NCCL and RCCL.
#include "linerate/trace/kineto/name_table.hpp"

#include "linerate/core/hash.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/input/decimal.hpp"
#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {
namespace {

LayerOperator layer_operator(std::string_view name) {
  if (name == "aten::mm") return LayerOperator::product;
  if (name == "CheckpointFunctionBackward") return LayerOperator::checkpoint;
  if (!name.starts_with("aten::") || !name.ends_with("_backward")) return LayerOperator::none;
  if (name == "aten::convolution_backward") return LayerOperator::convolution;
  if (name == "aten::embedding_dense_backward") return LayerOperator::embedding;
  if (name == "aten::native_layer_norm_backward") return LayerOperator::layer_norm;
  return name.ends_with("batch_norm_backward") ? LayerOperator::batch_norm : LayerOperator::none;
}

/// Tests go from names that mean one thing to names that must be searched. Kernels come last: their
/// names are long and contain almost anything.
NameInfo describe(std::string_view raw) {
  NameInfo info;
  info.text = raw;
  info.layer = layer_operator(raw);
  if (raw.starts_with("ProfilerStep#")) {
    const auto n = parse_whole(raw.substr(13));
    info.kind = n ? NameKind::step : NameKind::plain;
    info.step = n.value_or(-1);
    return info;
  }
  if (raw.starts_with("DistributedDataParallel.forward")) return info.kind = NameKind::ddp, info;
  if (raw.starts_with("enumerate(DataLoader)") || lowered(raw).starts_with("dataloader"))
    return info.kind = NameKind::loading, info;
  if (raw.starts_with("Optimizer.step#") || raw.starts_with("Optimizer.zero_grad#"))
    return info.kind = NameKind::optimizer, info;
  if (raw == "record_param_comms") return info.kind = NameKind::param_comms, info;
  if (raw == "torch::autograd::AccumulateGrad") return info.kind = NameKind::accumulate_grad, info;
  if (raw.starts_with("autograd::engine::evaluate_function"))
    return info.kind = NameKind::evaluate, info;
  if (raw.starts_with("c10d::")) {
    info.kind = NameKind::c10d;
    info.op = op_of_collective_name(raw.substr(6));
    return info;
  }
  const std::string low = lowered(raw);
  // "nccl:all_reduce", "gloo:all_reduce", "xccl:...", "mpi:..."; "nccl::..." is a kernel
  const std::size_t colon = low.find(':');
  if (colon != std::string::npos && colon > 0 && colon < 12 && low.find_first_of(" (<") > colon &&
      (colon + 1 == low.size() || low[colon + 1] != ':') &&
      (low.substr(0, colon).ends_with("ccl") || low.starts_with("gloo:") ||
       low.starts_with("mpi:") || low.starts_with("ucc:"))) {
    info.kind = NameKind::comm_mark;
    info.op = op_of_collective_name(low.substr(colon + 1));
    info.host_backend = low.starts_with("gloo:") || low.starts_with("mpi:");
    return info;
  }
  switch (kernel_communicates(low)) {
    case Communicates::yes:
      info.kind = NameKind::communication_kernel;
      info.op = op_of_kernel_name(low);
      break;
    case Communicates::maybe:
      info.suspicious = true;
      break;
    case Communicates::no:
      break;
  }
  return info;
}

}  // namespace

std::int32_t NameTable::intern(std::string_view raw) {
  // Template names reach kilobytes. What is longer is damage, and not worth keeping a second time.
  constexpr std::size_t kLongest = 64 * 1024;
  raw = raw.substr(0, kLongest);
  if (const auto found = index_.find(raw); found != index_.end()) return found->second;
  const auto index = static_cast<std::int32_t>(names_.size());
  names_.push_back(describe(raw));
  names_.back().hash = hash_bytes(raw);
  index_.emplace(raw, index);
  return index;
}

}  // namespace linerate::trace
