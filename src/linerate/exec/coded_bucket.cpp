// Reads from a Plan how each bucket is coded. The encode's operation gives the compressor, the
// bucket's parameters give the parts, and the graph gives the payloads. Layouts follow from shapes
// and options alone, so all ranks and the planner compute the same ones.
//
// Example: the encode task of bucket 2 has the operation "powersgd(rank=4)", and the bucket has a
// matrix and a bias. The layout has two rounds, of P and Q. The bias travels dense, at the end of
// the first round, because both are sums of f32. So the bucket has two payloads. With topk it would
// have a gathered one, and a dense one for a tensor that does not pay.
#include "linerate/exec/coded_bucket.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/keep_memory.hpp"

namespace linerate::exec {
namespace {

using doc::TaskGraph;

void find_payloads(const TaskGraph& graph, std::int32_t b, CodingOfBucket& bucket) {
  bucket.payloads = encoded_payloads(graph, b);
  if (bucket.layout.has_dense_payload() && !bucket.payloads.empty()) {
    bucket.dense = bucket.payloads.back();
    bucket.payloads.pop_back();
  }
  const std::size_t expected = bucket.has_owners() ? 3 : bucket.layout.rounds.size();
  LINERATE_CHECK(bucket.payloads.size() == expected,
                 fmt::format("{}: {} payloads of a bucket whose compressor has {}", graph.name,
                             bucket.payloads.size(), expected));
  bucket.counts = counts_of(graph, bucket.payloads.front());
}

}  // namespace

std::vector<std::int32_t> encoded_payloads(const TaskGraph& graph, std::int32_t bucket) {
  std::vector<std::int32_t> payloads;
  for (std::size_t p = 0; p < graph.payloads.size(); ++p)
    if (graph.payloads[p].content == doc::Content::encoded && graph.payloads[p].of == bucket)
      payloads.push_back(static_cast<std::int32_t>(p));
  return payloads;
}

BucketCodings::BucketCodings(int rank, int ranks, MakeCompressor make)
    : rank_(rank), ranks_(ranks), make_(std::move(make)) {}

/// Finds the compressor of the strategy. A Plan may compress no tensor at all, because none is
/// worth it, and then no task names a compressor. Its variants are still named by the compressor's
/// phase, so the strategy's text tells the phases.
void BucketCodings::set_compressor(const doc::Strategy& strategy) {
  const std::vector<std::string> names = compress::compressors().names();
  for (doc::Component extra : strategy.extras) {
    if (std::find(names.begin(), names.end(), extra.name) == names.end()) continue;
    std::erase_if(extra.options,
                  [](const auto& o) { return o.first == "exchange"; });  // the Plan's
    dense_method_ = {.label = doc::to_text(extra) + ", dense",
                     .compressor = compressor_of(extra).get(),
                     .is_dense = true};
    phases_ = dense_method_.compressor->phases();
    return;
  }
}

void BucketCodings::set_plan(std::shared_ptr<const doc::Plan> plan) {
  plan_ = std::move(plan);
  dense_method_ = {};
  phases_ = {};
  if (!plan_->strategy.empty()) set_compressor(doc::parse_strategy(plan_->strategy));
  rounds_.assign(plan_->operations.size(), 0);
  for (const TaskGraph& graph : plan_->variants)
    for (const doc::Task& task : graph.tasks) {
      if (!doc::is_coding(*plan_, task)) continue;
      const auto o = to_index(task.operation);
      const auto step = compress::CodingStep::of(plan_->operations[o]);
      rounds_[o] = step.round;
      if (step.phase >= 0) phases_ = compressor_of(step.compressor)->phases();
    }
}

bool BucketCodings::sees_dense_means() const {
  return dense_method_.compressor && dense_method_.compressor->of_dense({1, 1});
}

std::string BucketCodings::phase_of(std::int64_t step) const {
  return phases_.count() == 1 ? std::string() : phases_.name(phases_.of_step(step));
}

std::shared_ptr<const compress::Compressor> BucketCodings::compressor_of(
    const doc::Component& component) {
  auto& compressor = compressors_[doc::to_text(component)];
  if (!compressor) compressor = make_(component);
  return compressor;
}

CodingOfBucket BucketCodings::make(const TaskGraph& graph, const doc::Task& task) {
  CodingOfBucket bucket;
  bucket.graph = &graph;
  bucket.bucket = task.first;
  bucket.step = compress::CodingStep::of(plan_->operations[to_index(task.operation)]);
  bucket.step.round = 0;
  bucket.compressor = compressor_of(bucket.step.compressor);
  const doc::Payload& payload = graph.payloads[to_index(task.first)];
  std::vector<compress::Shape> shapes;
  for (std::int32_t m = payload.begin; m < payload.end; ++m) {
    const auto position = to_index(graph.members[to_index(m)]);
    const doc::GradientShape& s = plan_->gradient_shapes.at(position);
    shapes.push_back({s.elements, s.rows});
    bucket.names.push_back(&plan_->gradient_names.at(position));
  }
  bucket.layout = compress::layout_of(*bucket.compressor, shapes, bucket.step.phase,
                                      doc::to_text(bucket.step.compressor));
  if (bucket.has_owners())
    bucket.chunks = compress::two_phase_layout_of(*bucket.compressor, bucket.layout, ranks_);
  find_payloads(graph, task.first, bucket);
  compress::CodingStep method = bucket.step;
  method.phase = -1;
  method.compressor = compress::without_dense_below(method.compressor);
  bucket.method = {doc::to_text(method.to_operation()), bucket.compressor.get(), method.two_phase,
                   rank_, ranks_};
  return bucket;
}

// One memory for all payloads of a rehearsal. A rehearsal's values do not matter, so all payloads
// begin at the same place, and the memory is as large as the largest one. Only an all-to-all needs
// two places, because it must not write to the memory that it reads. Its target is the second one.

namespace {

constexpr std::int64_t kAlignment = 4096;

std::int64_t rounded_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::shared_ptr<std::byte> zeros(std::int64_t bytes) {
  const auto size = to_index(rounded_up(std::max<std::int64_t>(bytes, 1)));
  constexpr auto alignment = static_cast<std::align_val_t>(kAlignment);
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(::operator new(size, alignment)),
                                    [alignment](std::byte* p) { ::operator delete(p, alignment); });
  prefer_large_pages(memory.get(), size);
  std::memset(memory.get(), 0, size);
  return memory;
}

PayloadArena::PayloadArena(std::shared_ptr<const doc::Plan> plan) : plan_(std::move(plan)) {
  for (const doc::TaskGraph& graph : plan_->variants) {
    std::vector<bool>& second = is_second_.emplace_back(graph.payloads.size(), false);
    for (const doc::Task& task : graph.tasks)
      if (task.kind == doc::TaskKind::all_to_all && task.last != task.first)
        second[to_index(task.last)] = true;
    for (std::size_t p = 0; p < graph.payloads.size(); ++p) {
      std::int64_t& most = second[p] ? second_bytes_ : first_bytes_;
      most = std::max(most, rounded_up(graph.payloads[p].bytes()));
    }
  }
  memory_ = zeros(bytes());
}

comm::Buffer PayloadArena::buffer(const doc::TaskGraph& graph, std::int32_t payload) {
  const auto p = to_index(payload);
  const auto variant = to_index(&graph - plan_->variants.data());
  const doc::Payload& content = graph.payloads[p];
  std::byte* const begin = memory_.get() + (is_second_.at(variant)[p] ? first_bytes_ : 0);
  return {begin, {content.padded}, content.dtype};
}

/// A rehearsal has no data whose size could be told, so the sizes are what the Plan expects.
std::vector<std::int64_t> PayloadArena::counts(const doc::TaskGraph& graph, const doc::Task& task) {
  const std::int64_t ranks = plan_->group_of(task).size_of_part(0, plan_->ranks);
  const doc::Payload& payload = graph.payloads[to_index(task.first)];
  const std::int64_t all =
      task.expected > 0 ? task.expected / size_of(payload.dtype) : payload.padded;
  std::vector<std::int64_t> parts(to_index(ranks), all / ranks);
  std::fill_n(parts.begin(), all % ranks, all / ranks + 1);
  return parts;
}

}  // namespace linerate::exec
