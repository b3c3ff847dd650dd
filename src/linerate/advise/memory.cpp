#include "linerate/advise/memory.hpp"

#include <vector>

#include "linerate/plan/kept_bytes.hpp"

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

double error_memory_of(const doc::Plan& plan, const doc::TaskGraph& graph) {
  std::int64_t bytes = 0;
  for (const doc::Task& t : graph.tasks) bytes += plan::kept_bytes(plan, graph, t);
  return static_cast<double>(bytes);
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
