// One backward pass, from a trace's own records: AccumulateGrad runs once a gradient is complete
// and has it as input; the autograd node before it is the layer.
#include "linerate/trace/kineto/backward.hpp"

#include <algorithm>

namespace linerate::trace {
namespace {

/// When everything launched up to a moment of the host was done on the device; the host's own time
/// without kernels.
class DeviceClock {
 public:
  DeviceClock(const KinetoTrace& t, Span step) {
    std::vector<Launch> launches;
    for (const Launch& l : t.launches)
      if (l.start_ns >= step.start_ns && l.start_ns <= step.end_ns) launches.push_back(l);
    std::sort(launches.begin(), launches.end(),
              [](const Launch& a, const Launch& b) { return a.correlation < b.correlation; });
    for (const DeviceEvent& e : t.device) {
      if (e.copy || e.correlation == 0 || t.names[e.name].kind == NameKind::communication_kernel)
        continue;
      const auto at =
          std::lower_bound(launches.begin(), launches.end(), e.correlation,
                           [](const Launch& l, std::uint64_t c) { return l.correlation < c; });
      if (at != launches.end() && at->correlation == e.correlation)
        done_.push_back({at->start_ns, e.span.end_ns});
    }
    std::sort(done_.begin(), done_.end(),
              [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
    for (std::size_t i = 1; i < done_.size(); ++i)
      done_[i].end_ns = std::max(done_[i].end_ns, done_[i - 1].end_ns);
  }

  std::int64_t done_by(std::int64_t host_ns) const {
    const auto after =
        std::upper_bound(done_.begin(), done_.end(), host_ns,
                         [](std::int64_t time, const Span& s) { return time < s.start_ns; });
    return after == done_.begin() ? host_ns : std::max(host_ns, (after - 1)->end_ns);
  }

 private:
  std::vector<Span> done_;  // launch, running maximum of the kernels' ends
};

/// "autograd::engine::evaluate_function: AddmmBackward0" -> "Addmm"; empty for views, which belong
/// to their neighbour.
std::string layer_kind(std::string_view name) {
  constexpr std::string_view kPrefix = "autograd::engine::evaluate_function: ";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  const std::size_t end = name.find("Backward");
  const std::string_view kind = name.substr(0, end);
  if (end == std::string_view::npos || kind == "T" || kind == "View" || kind == "Transpose" ||
      kind == "Permute")
    return {};
  return std::string(kind);
}

/// Autograd nodes and the AccumulateGrads between them that began within `step`, by start.
std::vector<const CpuOp*> backward_ops_of(const KinetoTrace& t, Span step) {
  std::vector<const CpuOp*> ops;
  for (const CpuOp& op : t.ops) {
    const NameKind kind = t.names[op.name].kind;
    if ((kind == NameKind::accumulate_grad || kind == NameKind::evaluate) &&
        op.span.start_ns >= step.start_ns && op.span.start_ns < step.end_ns)
      ops.push_back(&op);
  }
  std::sort(ops.begin(), ops.end(),
            [](const CpuOp* a, const CpuOp* b) { return a->span.start_ns < b->span.start_ns; });
  return ops;
}

bool all_gradients_have_sizes(const KinetoTrace& t, const std::vector<const CpuOp*>& ops) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
  return std::none_of(ops.begin(), ops.end(), [&t](const CpuOp* op) {
    return t.names[op->name].kind == NameKind::accumulate_grad &&
           (op->elements < 0 || op->elements > kMostElements);
  });
}

}  // namespace

bool add_backward(const KinetoTrace& t, Span step, Job& job) {
  const std::vector<const CpuOp*> ops = backward_ops_of(t, step);
  if (!all_gradients_have_sizes(t, ops)) return false;
  const DeviceClock clock(t, step);
  std::vector<GradientRecord> gradients;
  std::vector<LayerRecord> layers;  // backward order
  std::string kind;
  std::int64_t begin = 0, node_begin = 0;
  bool begun = false, fresh = false;
  for (const CpuOp* op : ops) {
    const NameInfo& name = t.names[op->name];
    if (!begun) begin = node_begin = clock.done_by(op->span.start_ns), begun = true;
    if (name.kind == NameKind::evaluate) {
      if (std::string k = layer_kind(name.text); !k.empty()) kind = std::move(k), fresh = true;
      continue;
    }
    const std::int64_t ready =
        std::max(clock.done_by(op->span.start_ns),
                 gradients.empty() ? begin : begin + gradients.back().ready_ns);
    if (fresh || layers.empty()) {
      layers.push_back({.kind = kind, .backward_ns = ready - node_begin});
      fresh = false;
    } else {
      layers.back().backward_ns += ready - node_begin;
    }
    node_begin = ready;
    gradients.push_back({.elements = op->elements,
                         .dtype = op->dtype,
                         .ready_ns = ready - begin,
                         .layer = static_cast<int>(layers.size()) - 1});
  }
  if (gradients.empty()) return false;
  job.gradients = std::move(gradients);
  job.layers = std::move(layers);
  job.backward_begin_ns = begin - step.start_ns;
  return true;
}

}  // namespace linerate::trace
