#include "linerate/trace/to_workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/explain/breakdown.hpp"

namespace linerate::trace {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

void from_records(const Job& job, doc::Workload& w) {
  const int layers = static_cast<int>(job.layers.size());
  for (int i = layers - 1; i >= 0; --i) {  // forward order
    const LayerRecord& l = job.layers[static_cast<std::size_t>(i)];
    doc::Layer layer;
    layer.name = fmt::format("layer{}", layers - 1 - i);
    layer.kind = l.kind;
    layer.backward_s = seconds(l.backward_ns);
    w.layers.push_back(layer);
  }
  for (std::size_t i = 0; i < job.gradients.size(); ++i) {
    const GradientRecord& g = job.gradients[i];
    doc::Gradient out;
    out.name = fmt::format("layer{}.gradient{}", layers - 1 - g.layer, i);
    out.elements = g.elements;
    out.dtype = g.dtype;
    out.layer = layers - 1 - g.layer;
    out.registration = static_cast<int>(job.gradients.size() - 1 - i);
    out.ready_s = seconds(g.ready_ns);
    w.gradients.push_back(out);
  }
  w.backward_s = w.gradients.back().ready_s;
  w.forward_s = seconds(std::max<std::int64_t>(0, job.backward_begin_ns));
}

/// Buckets instead of gradients: an exchange starts when its bucket is full.
bool from_buckets(const Job& job, const Breakdown& b, doc::Workload& w) {
  for (const RankActivity& r : job.ranks) {
    for (std::size_t s = r.steps.size(); s-- > 0;) {
      std::vector<const Communication*> found;
      for (const Communication& c : r.communications)
        if (c.step == static_cast<std::int32_t>(s) && carries_gradients(c.op) && c.bytes >= 4)
          found.push_back(&c);
      if (found.empty()) continue;
      const std::int64_t begin = std::min(r.steps[s].span.start_ns, found.front()->span.start_ns);
      for (const Communication* c : found) {
        doc::Gradient g;
        g.name = fmt::format("bucket{}", w.gradients.size());
        g.elements = c->bytes / 4;
        g.registration = static_cast<int>(found.size() - 1 - w.gradients.size());
        g.ready_s = seconds(c->span.start_ns - begin);
        w.gradients.push_back(g);
      }
      w.backward_s = std::max(w.gradients.back().ready_s,
                              b.in_steps.compute_s / static_cast<double>(b.steps.size()));
      return true;
    }
  }
  return false;
}

}  // namespace

doc::Workload workload_of(const Job& job, const std::string& name,
                          std::vector<std::string>& notes) {
  const Breakdown b = break_down(job);
  notes.insert(notes.end(), b.notes.begin(), b.notes.end());
  doc::Workload w;
  w.name = name;
  w.source = fmt::format("trace {}", job.ranks.empty() ? name : job.ranks.front().source);
  if (!job.gradients.empty()) {
    from_records(job, w);
  } else if (from_buckets(job, b, w)) {
    notes.push_back(
        "no AccumulateGrad records with shapes (record_shapes was off): each gradient exchange "
        "stands for one gradient, and its start for the moment it was ready");
  } else {
    throw InputError(name,
                     "neither AccumulateGrad records with shapes nor gradient exchanges of known "
                     "size inside a step: no Workload can be made; record with record_shapes=True "
                     "and a step schedule");
  }
  if (!b.steps.empty()) {
    std::vector<double> alone;
    for (const StepRow& s : b.steps)
      alone.push_back(std::max(0.0, s.duration_s - s.busy.exposed_s));
    w.step_s = std::max(median(alone), w.backward_s);
    if (b.whole.communication_s > 0)
      notes.push_back(fmt::format(
          "T_1 {} is the median step less its exposed communication; computation overlapped with "
          "communication may have been slower than alone",
          format_time(*w.step_s)));
  }
  if (!job.ranks.empty() && !job.ranks.front().steps.empty()) {
    std::int64_t broadcast = 0;
    for (const Communication& c : job.ranks.front().communications)
      if (c.op == CommOp::broadcast && c.bytes > 0 && c.step >= 0) broadcast += c.bytes;
    w.buffer_bytes = broadcast / static_cast<std::int64_t>(job.ranks.front().steps.size());
  }
  return w;
}

}  // namespace linerate::trace
