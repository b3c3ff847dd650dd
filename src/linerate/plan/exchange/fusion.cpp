// Cuts gradients into buckets by size. An example: limits of 1 and 25 MiB, and gradients of .4, .7,
// 20 and 8 MiB. The first bucket closes with the second gradient, at 1.1 MiB. The second one closes
// with the fourth gradient, at 28 MiB. A bucket may so exceed its limit by almost one tensor, as in
// DDP.
#include "linerate/plan/exchange/fusion.hpp"

#include <functional>
#include <numeric>

#include "linerate/core/bucket_limits.hpp"
#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

doc::Payload bucket_of(std::int32_t begin, std::int32_t end, DType dtype, std::int64_t elements) {
  return {.dtype = dtype, .begin = begin, .end = end, .elements = elements, .padded = elements};
}

// An open bucket of one dtype: dtypes may interleave, so each has a list of its own.
struct Open {
  explicit Open(std::span<const std::int64_t> all) : limits(all) {}

  std::vector<std::int32_t> members;
  std::int64_t bytes = 0, elements = 0;
  BucketLimits limits;
  std::size_t opened_at = 0;
};

// Makes a payload of the open bucket and empties it.
void close(Open& open, DType dtype, doc::TaskGraph& graph) {
  const auto begin = static_cast<std::int32_t>(graph.members.size());
  graph.members.insert(graph.members.end(), open.members.begin(), open.members.end());
  graph.payloads.push_back(
      bucket_of(begin, static_cast<std::int32_t>(graph.members.size()), dtype, open.elements));
  open.members.clear();
  open.bytes = open.elements = 0;
}

}  // namespace

std::vector<std::int32_t> ready_order(const doc::Workload& workload) {
  std::vector<std::int32_t> order(workload.gradients.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::int32_t> reverse_registration_order(const doc::Workload& workload) {
  std::vector<std::int32_t> order = ready_order(workload);
  std::ranges::stable_sort(order, std::greater(), [&](std::int32_t position) {
    return workload.gradients[to_index(position)].registration;
  });
  return order;
}

void append_by_limits(const doc::Workload& workload, std::span<const std::int32_t> order,
                      std::span<const std::int64_t> limits, doc::TaskGraph& graph) {
  std::vector<Open> open(kDTypeNames.size(), Open(limits));
  for (std::size_t at = 0; at < order.size(); ++at) {
    const doc::Gradient& g = workload.gradients[to_index(order[at])];
    Open& o = open[to_index(g.dtype)];
    if (o.members.empty()) o.opened_at = at;
    o.members.push_back(order[at]);
    o.bytes += g.bytes();
    o.elements += g.elements;
    if (o.limits.closes_at(o.bytes)) close(o, g.dtype, graph);
  }
  // The rest go by first member, so that the order does not depend on the dtypes' numbering.
  std::vector<std::size_t> left;
  for (std::size_t d = 0; d < open.size(); ++d)
    if (!open[d].members.empty()) left.push_back(d);
  std::ranges::sort(left, {}, [&](std::size_t d) { return open[d].opened_at; });
  for (const std::size_t d : left) close(open[d], static_cast<DType>(d), graph);
}

void append_range(const doc::Workload& workload, std::int32_t begin, std::int32_t end,
                  doc::TaskGraph& graph) {
  const auto first = static_cast<std::int32_t>(graph.members.size());
  std::int64_t elements = 0;
  for (std::int32_t position = begin; position < end; ++position) {
    graph.members.push_back(position);
    elements += workload.gradients[to_index(position)].elements;
  }
  graph.payloads.push_back(
      bucket_of(first, first + end - begin, workload.gradients[to_index(begin)].dtype, elements));
}

}  // namespace linerate::plan
