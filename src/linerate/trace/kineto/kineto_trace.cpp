// What the names of events mean, through every era of PyTorch, NCCL and RCCL.
#include "linerate/trace/kineto/kineto_trace.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <system_error>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/by_start.hpp"
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

/// How names begin that mean one thing.
struct NameBegin {
  std::string_view text;
  NameKind kind;
  std::optional<StepPhase> phase = {};
};
constexpr std::array kNameBegins = {
    NameBegin{"DistributedDataParallel.forward", NameKind::ddp, StepPhase::forward},
    NameBegin{"enumerate(DataLoader)", NameKind::loading, StepPhase::data_loading},
    NameBegin{"Optimizer.step#", NameKind::optimizer, StepPhase::optimizer},
    NameBegin{"Optimizer.zero_grad#", NameKind::optimizer, StepPhase::optimizer},
    NameBegin{"autograd::engine::evaluate_function", NameKind::evaluate, StepPhase::backward}};

/// Tests go from names that mean one thing to names that must be searched. Kernels come last: their
/// names are long and contain almost anything.
NameInfo describe(std::string_view raw) {
  NameInfo info;
  info.text = raw;
  info.layer = layer_operator(raw);
  for (const NameBegin& b : kNameBegins)
    if (raw.starts_with(b.text)) return info.kind = b.kind, info.phase = b.phase, info;
  if (raw.starts_with("ProfilerStep#")) {
    const auto n = parse_whole(raw.substr(13));
    info.kind = n ? NameKind::step : NameKind::plain;
    info.step = n.value_or(-1);
    return info;
  }
  if (raw == "record_param_comms") return info.kind = NameKind::param_comms, info;
  if (raw == "torch::autograd::AccumulateGrad") return info.kind = NameKind::accumulate_grad, info;
  if (raw.starts_with("c10d::")) {
    info.kind = NameKind::c10d;
    info.op = op_of_collective_name(raw.substr(6));
    return info;
  }
  const std::string low = lowered(raw);
  if (low.starts_with("dataloader"))
    return info.kind = NameKind::loading, info.phase = StepPhase::data_loading, info;
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
  const Communicates communicates = kernel_communicates(low);
  info.suspicious = communicates == Communicates::maybe;
  if (communicates == Communicates::yes)
    info.kind = NameKind::communication_kernel, info.op = op_of_kernel_name(low);
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

namespace {

/// Reads nested lists of numbers. `see(argument, depth, numbers, is_empty)` is called when a list
/// closes, with the numbers that it holds itself. The list of arguments has depth 1. False: a
/// number is negative or too large.
template <typename See>
bool read_dims(std::string_view list, const See& see) {
  std::vector<TensorShape> open;
  std::size_t argument = 0;
  char before = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (c == ' ') continue;
    if (c == '[') {
      open.emplace_back();
    } else if (c == ']' && !open.empty()) {
      see(argument, open.size(), open.back(), before == '[');
      open.pop_back();
      argument += open.size() == 1 ? 1 : 0;
    } else if (!open.empty() && (c == '-' || (c >= '0' && c <= '9'))) {
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(&list[i], list.data() + list.size(), number);
      if (error != std::errc() || number < 0) return false;
      open.back().push_back(number);
      i = to_index(end - list.data()) - 1;
    }
    before = c;
  }
  return true;
}

/// Adds the elements of a shape. `sum` is -1 before the first, and stays kTooMany.
constexpr std::int64_t kTooMany = -2;
void add_elements(const TensorShape& shape, std::int64_t& sum) {
  const std::int64_t elements = elements_of(shape);
  const bool too_many = elements < 0 || sum == kTooMany || sum > (std::int64_t{1} << 60);
  sum = too_many ? kTooMany : std::max<std::int64_t>(sum, 0) + elements;
}

}  // namespace

std::int64_t elements_of_dims(std::string_view list) {
  std::int64_t sum = -1;
  const bool whole =
      read_dims(list, [&sum](std::size_t, std::size_t, const TensorShape& shape, bool) {
        if (!shape.empty()) add_elements(shape, sum);
      });
  return whole ? std::max<std::int64_t>(sum, -1) : -1;
}

std::pair<std::int64_t, std::int64_t> elements_of_first_two(std::string_view list) {
  constexpr std::size_t kOfTensorList = 3;
  std::array<std::int64_t, 2> sums = {-1, -1};
  const bool whole = read_dims(list, [&sums](std::size_t argument, std::size_t depth,
                                             const TensorShape& shape, bool is_empty) {
    if (argument < sums.size() && (!shape.empty() || (is_empty && depth == kOfTensorList)))
      add_elements(shape, sums[argument]);
  });
  if (!whole) return {-1, -1};
  return {std::max<std::int64_t>(sums[0], -1), std::max<std::int64_t>(sums[1], -1)};
}

std::vector<TensorShape> shapes_of_first(std::string_view list, std::size_t most) {
  std::vector<TensorShape> shapes;
  const bool whole =
      read_dims(list, [&](std::size_t, std::size_t depth, const TensorShape& shape, bool) {
        if (depth == 2 && shapes.size() < most) shapes.push_back(shape);
      });
  return whole ? shapes : std::vector<TensorShape>();
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
  return brackets == "[[]]" && first_element_type(types);
}

std::optional<ElementType> first_element_type(std::string_view list) {
  for (std::size_t at = 0;;) {
    const std::size_t begin = list.find('"', at);
    const std::size_t end = list.find('"', begin + 1);
    if (begin == std::string_view::npos || end == std::string_view::npos) return std::nullopt;
    if (const auto type = element_type_of(list.substr(begin + 1, end - begin - 1))) return type;
    at = end + 1;
  }
}

DeviceClock::DeviceClock(const KinetoTrace& t) {
  for (const KinetoEvent& e : t.device) {
    if (e.copy || is_communication_kernel(t, e)) continue;
    if (const KinetoEvent* launch = t.launch_of(e))
      done_.push_back({launch->span.start_ns, e.span.end_ns});
  }
  std::ranges::sort(done_, {}, start_of);
  for (std::size_t i = 1; i < done_.size(); ++i)
    done_[i].end_ns = std::max(done_[i].end_ns, done_[i - 1].end_ns);
}

std::optional<std::int64_t> DeviceClock::work_done_by(std::int64_t host_ns) const {
  const Span* last = last_begun(done_, host_ns);
  return last == nullptr ? std::nullopt : std::optional(last->end_ns);
}

std::int64_t DeviceClock::done_by(std::int64_t host_ns) const {
  return std::max(host_ns, work_done_by(host_ns).value_or(host_ns));
}

}  // namespace linerate::trace
