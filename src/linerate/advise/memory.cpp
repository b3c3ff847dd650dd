#include "linerate/advise/memory.hpp"

#include <algorithm>
#include <vector>

namespace linerate::advise {
namespace {

MemoryNeed memory_of(const doc::TaskGraph& graph) {
  MemoryNeed need;
  std::vector<double> dense, payload(graph.buckets.size(), 0);
  std::vector<bool> encoded(graph.buckets.size(), false);
  for (const doc::Bucket& b : graph.buckets) {
    dense.push_back(static_cast<double>(b.elements * size_of(b.dtype)));
    need.buckets += dense.back();
  }
  for (const doc::Task& t : graph.tasks) {
    const auto bytes = static_cast<double>(t.bytes);
    if (t.kind == doc::TaskKind::factor || t.kind == doc::TaskKind::inverse) need.factors += bytes;
    for (std::int32_t b = std::max(0, t.first);
         b <= t.last && b < static_cast<std::int32_t>(dense.size()); ++b) {
      const auto i = static_cast<std::size_t>(b);
      if (t.kind == doc::TaskKind::encode) encoded[i] = true;
      // A bucket that travels as it is needs no second buffer: collectives work in place.
      if (doc::is_communication(t.kind) && bytes != dense[i])
        payload[i] = std::max(payload[i], bytes);
    }
  }
  for (std::size_t i = 0; i < dense.size(); ++i) {
    need.payloads += payload[i];
    if (encoded[i]) need.error_memory += dense[i];
  }
  return need;
}

}  // namespace

MemoryNeed memory_of(const doc::Plan& plan) {
  MemoryNeed most;
  for (const doc::TaskGraph& graph : plan.variants)
    if (const MemoryNeed need = memory_of(graph); need.total() > most.total()) most = need;
  return most;
}

}  // namespace linerate::advise
