// What the names of events mean, through every era of PyTorch, NCCL and RCCL.
#include "linerate/trace/kineto/kineto_trace.hpp"

#include <array>
#include <charconv>
#include <string>
#include <system_error>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/input/json_token.hpp"
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

std::int64_t bytes_of(const CollectiveArgs& c) {
  if ((c.op == CommOp::all_gather || c.op == CommOp::gather) && c.out_elements < 0) {
    if (c.group_size < 1 || c.bytes() < 0 || c.bytes() > (INT64_MAX / 4) / c.group_size) return -1;
    return c.bytes() * c.group_size;
  }
  return c.bytes();
}

// "Input Dims" has one entry for each argument: [64, 3] for a tensor, [[4], [2, 2]] for a list of
// tensors. A scalar tensor has [], and so has an argument that is no tensor. "Input type" tells the
// last two apart.

/// One pass over the text, because such lists stand in every operator of a trace. A shape is a list
/// that directly holds digits; its product is added when the list closes.
std::int64_t elements_of_dims(std::string_view list, int scalar_depth) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t sum = 0, product = 1, number = 0;
  bool shape = false, digits = false, any = false;
  int depth = 0;
  char before = 0;
  for (const char c : list) {
    if (c == ' ') continue;
    const char last = std::exchange(before, c);
    if (c >= '0' && c <= '9') {
      if (number > kMost / 10) return -1;
      number = number * 10 + (c - '0');
      digits = true;
      continue;
    }
    if (digits) {
      if (number != 0 && product > kMost / number) return -1;
      product *= number;
      shape = true;
      digits = false;
      number = 0;
    }
    if (c == '[') {
      product = 1;
      shape = false;
      ++depth;
    } else if (c == ']') {
      if (shape || (last == '[' && depth == scalar_depth)) {
        if (sum > kMost - product) return -1;
        sum += product;
        any = true;
      }
      shape = false;
      --depth;
    } else if (c == '-') {
      return -1;
    }
  }
  return any ? sum : -1;
}

std::pair<std::int64_t, std::int64_t> elements_of_first_two(std::string_view list) {
  constexpr int kOfTensorList = 2;
  std::array<std::int64_t, 2> found = {-1, -1};
  int depth = 0;
  std::size_t argument = 0, begin = 0;
  for (std::size_t i = 0; i < list.size() && argument < found.size(); ++i) {
    if (list[i] == '[' && ++depth == 2) begin = i;
    if (list[i] == ']' && depth-- == 2)
      found[argument++] = elements_of_dims(list.substr(begin, i + 1 - begin), kOfTensorList);
  }
  return {found[0], found[1]};
}

/// Depth 1 is the list of arguments, depth 2 the shape of a tensor. Numbers deeper than that belong
/// to a list of tensors, and are passed over.
std::vector<TensorShape> shapes_of_first(std::string_view list, std::size_t most) {
  std::vector<TensorShape> shapes;
  int depth = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' && ++depth == 2) {
      if (shapes.size() == most) break;
      shapes.emplace_back();
    }
    if (list[i] == ']') --depth;
    const bool is_number = list[i] == '-' || (list[i] >= '0' && list[i] <= '9');
    if (depth != 2 || !is_number) continue;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(&list[i], list.data() + list.size(), number);
    if (error != std::errc() || number < 0) return {};
    shapes.back().push_back(number);
    i = to_index(end - list.data()) - 1;
  }
  return shapes;
}

std::int64_t elements_of(const TensorShape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t elements = 1;
  for (const std::int64_t n : shape) {
    if (n > 0 && elements > kMost / n) return -1;
    elements *= n;
  }
  return elements;
}

bool is_one_scalar(std::string_view dims, std::string_view types) {
  std::string brackets;
  for (const char c : dims)
    if (c != ' ') brackets += c;
  return brackets == "[[]]" && first_element_type(types).bytes > 0;
}

TypeFound first_element_type(std::string_view list) {
  for (std::size_t at = 0;;) {
    const std::size_t begin = list.find('"', at);
    if (begin == std::string_view::npos) return {};
    const std::size_t end = list.find('"', begin + 1);
    if (end == std::string_view::npos) return {};
    const std::string_view name = list.substr(begin + 1, end - begin - 1);
    if (const int bytes = element_bytes_of(name); bytes > 0) return {bytes, name};
    at = end + 1;
  }
}

}  // namespace linerate::trace
