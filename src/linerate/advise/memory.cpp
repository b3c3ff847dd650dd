#include "linerate/advise/memory.hpp"

#include <vector>

#include "linerate/plan/codec.hpp"

namespace linerate::advise {
namespace {

// Collectives work in place, so what travels as it is needs no second buffer.
MemoryNeed of_payloads(const doc::TaskGraph& graph) {
  MemoryNeed need;
  for (const doc::Payload& p : graph.payloads) {
    const auto bytes = static_cast<double>(p.bytes());
    switch (p.content) {
      case doc::Content::gradients:
        need.buckets += bytes;
        break;
      case doc::Content::factors:
      case doc::Content::inverse:
        need.factors += bytes;
        break;
      default:
        need.payloads += bytes;
    }
  }
  return need;
}

// Of the dense values, without the zeros behind them.
double error_memory_of(const doc::Plan& plan, const doc::TaskGraph& graph) {
  double bytes = 0;
  for (const doc::Task& t : graph.tasks) {
    if (t.kind != doc::TaskKind::encode || !plan::is_codec(plan, t)) continue;
    for (std::int32_t i = t.first; i <= t.last; ++i) {
      const doc::Payload& dense = graph.payloads[static_cast<std::size_t>(i)];
      bytes += static_cast<double>(dense.elements * size_of(dense.dtype));
    }
  }
  return bytes;
}

}  // namespace

MemoryNeed memory_of(const doc::Plan& plan) {
  MemoryNeed most;
  for (const doc::TaskGraph& graph : plan.variants) {
    MemoryNeed need = of_payloads(graph);
    need.error_memory = error_memory_of(plan, graph);
    if (need.total() > most.total()) most = need;
  }
  return most;
}

}  // namespace linerate::advise
