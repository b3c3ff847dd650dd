// Memory of an exchange, read from the tasks and payloads of its Plan. Buckets and payloads are
// counted for each variant; what K-FAC and compressors keep from step to step is counted on top.
#include "linerate/advise/memory.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "linerate/core/index.hpp"
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
      case doc::Content::eigen:
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

/// The type in which factors travel; if none do, that of directions. It is f64 if a gradient is.
DType dtype_of_factors(const doc::TaskGraph& graph) {
  for (const doc::Payload& p : graph.payloads)
    if (p.content == doc::Content::factors || p.content == doc::Content::inverse ||
        p.content == doc::Content::directions)
      return p.dtype;
  return DType::f32;
}

/// Bytes of factors whose statistics, averages or inverses each rank keeps. A factor counts once on
/// a rank, however many variants and tasks name it.
class KeptOnRanks {
 public:
  explicit KeptOnRanks(const doc::Plan& plan)
      : plan_(plan),
        has_(to_index(plan.ranks) * 2 * plan.blocks.size()),
        bytes_(to_index(plan.ranks)) {}

  void add(const doc::Task& task, std::int32_t factor, double bytes) {
    const auto& parts = plan_.group_of(task).parts;
    if (parts.empty())
      for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) add(rank, factor, bytes);
    for (const auto& part : parts)
      for (const std::int32_t rank : part) add(rank, factor, bytes);
  }
  const std::vector<double>& bytes() const { return bytes_; }

 private:
  void add(std::int32_t rank, std::int32_t factor, double bytes) {
    const auto r = to_index(rank);
    const auto has = r * 2 * plan_.blocks.size() + to_index(factor);
    if (!has_[has]) bytes_[r] += bytes;
    has_[has] = true;
  }

  const doc::Plan& plan_;
  std::vector<bool> has_;
  std::vector<double> bytes_;
};

/// Elements of a factor that is not packed: the whole matrices of a dense one.
double whole_elements(const doc::Block& block, doc::FactorSide side) {
  if (!block.dense(side)) return static_cast<double>(packed_elements(block, side));
  const auto d = static_cast<double>(block.dimension(side));
  return block.groups * d * d;
}

std::vector<std::int32_t> factors_in(const doc::TaskGraph& graph, const doc::Task& task) {
  std::vector<std::int32_t> factors;
  if (task.subject == doc::Subject::payloads) {
    const doc::Payload& payload = graph.payloads[to_index(task.first)];
    factors.assign(graph.members.begin() + payload.begin, graph.members.begin() + payload.end);
  } else {
    for (std::int32_t f = task.first; f <= task.last; ++f) factors.push_back(f);
  }
  return factors;
}

/// Bytes that K-FAC keeps beyond payloads, on the rank that keeps most. Tasks say who keeps what: a
/// task's group holds the ranks that compute, average or invert a factor.
double curvature_of(const doc::Plan& plan) {
  if (plan.blocks.empty()) return 0;
  KeptOnRanks statistics(plan), averages(plan), inverses(plan);
  for (const doc::TaskGraph& graph : plan.variants)
    for (const doc::Task& task : graph.tasks) {
      const std::string_view operation = plan.operation_name(task);
      KeptOnRanks* const kept =
          task.kind == doc::TaskKind::factor                                      ? &statistics
          : operation == "average-factors"                                        ? &averages
          : operation == "unpack-inverses" || task.kind == doc::TaskKind::inverse ? &inverses
                                                                                  : nullptr;
      if (!kept) continue;
      for (const std::int32_t f : factors_in(graph, task)) {
        const auto side = doc::side_of_factor(f);
        const doc::Block& block = plan.blocks[to_index(doc::block_of_factor(f))];
        const double elements = kept == &averages
                                    ? static_cast<double>(packed_elements(block, side))
                                    : whole_elements(block, side);
        kept->add(task, f, elements * static_cast<double>(size_of(dtype_of_factors(graph))));
      }
    }
  double most = 0;
  for (std::size_t r = 0; r < to_index(plan.ranks); ++r)
    most = std::max(most, statistics.bytes()[r] + averages.bytes()[r] + inverses.bytes()[r]);
  return most;
}

}  // namespace

MemoryNeed memory_of(const doc::Plan& plan) {
  const double curvature = curvature_of(plan);
  MemoryNeed most;
  for (const doc::TaskGraph& graph : plan.variants) {
    MemoryNeed need = of_payloads(graph);
    need.error_memory = error_memory_of(plan, graph);
    need.factors += curvature;
    if (need.total() > most.total()) most = need;
  }
  return most;
}

}  // namespace linerate::advise
