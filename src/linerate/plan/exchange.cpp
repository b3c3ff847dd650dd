#include "linerate/plan/exchange.hpp"

#include <algorithm>

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

/// `two_phase`: with what the owner of the largest part keeps of it.
std::int64_t kept_by(const compress::Compressor& compressor, bool two_phase, const doc::Plan& plan,
                     const doc::TaskGraph& graph, const doc::Payload& bucket) {
  std::int64_t bytes = 0;
  for (const std::int32_t position : members_of(graph, bucket)) {
    const doc::GradientShape& shape = plan.gradient_shapes.at(to_index(position));
    bytes += compress::kept_bytes(compressor, {shape.elements, shape.rows});
    if (two_phase)
      bytes += compress::kept_bytes(
          compressor, {compress::cut_into_chunks(shape.elements, plan.ranks).front().elements, 1});
  }
  return bytes;
}

// A K-FAC step is said by exclusion: it is simulated with its first parts alone, then with one part
// more, and so on. A part's time is the difference. An example: a step takes 100 ms with forward
// and backward alone, 112 ms with gradients and 115 ms with factors too. The factors cost 3 ms
// exposed, however long they take by themselves.
//
// This file makes the Plans of those shorter steps. Tasks of later parts leave the graph, and what
// waited for them waits for what they waited for. whatif/preset_model.cpp calls it, once a part.

using doc::Content;
using doc::StepPart;
using doc::TaskKind;

/// The content of the payload that a task moves or fills, before any encoding; absent if the task
/// has none. An encoded payload is followed to the one that it stands for.
std::optional<Content> content_of(const doc::TaskGraph& graph, const doc::Task& task) {
  if (task.subject == doc::Subject::factors) return Content::factors;
  if (task.subject == doc::Subject::inverses) return Content::inverse;
  if (task.subject != doc::Subject::payloads || task.last < task.first) return std::nullopt;
  const doc::Payload* payload = &graph.payloads[to_index(task.first)];
  while (payload->of >= 0) payload = &graph.payloads[to_index(payload->of)];
  return payload->content;
}

/// The part of collectives, and of the copies and codings around them. Copies of factors are
/// computation of factors; all around inverses and directions is their communication.
StepPart part_of_exchange(std::optional<Content> content, bool communicates) {
  if (content == Content::factors)
    return communicates ? StepPart::factor_communication : StepPart::factor_computation;
  const bool second_order =
      content && (doc::holds_inverses(*content) || content == Content::directions);
  return second_order ? StepPart::inverse_communication : StepPart::gradient_communication;
}

/// A graph that loses the tasks of later parts. A task that waited for a lost task waits for what
/// that one waited for. An example: c waits for b, and b waits for a and x. Without b, c waits for
/// a and x. `instead` of a task that stays is its new index; of a lost task it is the list of what
/// it waited for. Tasks are in topological order, so one pass is enough.
class Thinned {
 public:
  Thinned(const doc::Plan& plan, const doc::TaskGraph& graph, StepPart last)
      : graph_(graph), waits_(graph.tasks.size()) {
    out_.name = graph.name;
    out_.payloads = graph.payloads;
    out_.members = graph.members;
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      collect(i);
      if (part_of(plan, graph, graph.tasks[i]) <= last) keep(i);
    }
  }

  bool kept(std::uint32_t task) const { return waits_[task].kept; }
  /// The new index of a task that stays; for another the new indices of what it waited for.
  const std::vector<std::uint32_t>& instead_of(std::uint32_t task) const {
    return waits_[task].instead;
  }
  void set_next_step(std::vector<doc::NextStepEdge> edges) { out_.next_step = std::move(edges); }
  doc::TaskGraph take() && { return std::move(out_); }

 private:
  struct Waits {
    bool kept = false;
    std::vector<std::uint32_t> instead;
  };

  /// What the task waits for after the cut: the new indices of all predecessors, each once.
  void collect(std::size_t i) {
    std::vector<std::uint32_t>& all = waits_[i].instead;
    for (const std::uint32_t p : graph_.predecessors(i)) {
      const std::vector<std::uint32_t>& those = waits_[p].instead;
      all.insert(all.end(), those.begin(), those.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }

  /// Now a task that waits for this one waits for its new index alone.
  void keep(std::size_t i) {
    const std::uint32_t now = out_.add(graph_.tasks[i]);
    for (const std::uint32_t p : waits_[i].instead) out_.add_predecessor_to_last(p);
    waits_[i] = {true, {now}};
  }

  const doc::TaskGraph& graph_;
  doc::TaskGraph out_;
  std::vector<Waits> waits_;  // by task of the whole graph
};

/// Edges into the next step; one into a task that is gone is gone with it. One from a task that is
/// gone becomes an edge from each task that it waited for.
std::vector<doc::NextStepEdge> edges_of(const doc::TaskGraph& graph, const Thinned& from,
                                        const std::vector<Thinned>& all) {
  std::vector<doc::NextStepEdge> edges;
  for (const doc::NextStepEdge& e : graph.next_step) {
    const Thinned& into = all[to_index(e.variant)];
    if (!into.kept(e.to)) continue;
    for (const std::uint32_t f : from.instead_of(e.from))
      edges.push_back({f, into.instead_of(e.to).front(), e.variant});
  }
  return edges;
}

}  // namespace

std::int64_t kept_bytes(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  if (task.kind != doc::TaskKind::encode || !doc::is_coding(plan, task)) return 0;
  const doc::Component& operation = plan.operations[to_index(task.operation)];
  const bool is_compressor = is(operation, Extra::compressor);
  const auto step = is_compressor ? compress::CodingStep::of(operation) : compress::CodingStep{};
  if (step.round > 0) return 0;
  const auto compressor = is_compressor ? compress::make_compressor(step.compressor) : nullptr;
  std::int64_t bytes = 0;
  for (std::int32_t i = task.first; i <= task.last; ++i) {
    const doc::Payload& bucket = graph.payloads[to_index(i)];
    bytes += compressor ? kept_by(*compressor, step.two_phase, plan, graph, bucket)
                        : bucket.elements * size_of(bucket.dtype);
  }
  return bytes;
}

// A timer holds a gradient's exchange back, so it belongs to that.
StepPart part_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  if (doc::is_communication(task.kind)) return part_of_exchange(content_of(graph, task), true);
  switch (task.kind) {
    case TaskKind::factor:
      return StepPart::factor_computation;
    case TaskKind::inverse:
    case TaskKind::precondition:
      return StepPart::inverse_computation;
    case TaskKind::encode:
    case TaskKind::decode:
    case TaskKind::copy:
      return part_of_exchange(content_of(graph, task), false);
    case TaskKind::host:
      return doc::is_timer(plan, task) ? StepPart::gradient_communication
                                       : StepPart::forward_backward;
    default:
      return StepPart::forward_backward;
  }
}

// All graphs first, then the edges between them: an edge may lead into any other variant.
doc::Plan up_to(const doc::Plan& plan, StepPart last) {
  doc::Plan out = plan;
  std::vector<Thinned> thinned;
  for (const doc::TaskGraph& graph : plan.variants) thinned.emplace_back(plan, graph, last);
  for (std::size_t v = 0; v < thinned.size(); ++v)
    thinned[v].set_next_step(edges_of(plan.variants[v], thinned[v], thinned));
  for (std::size_t v = 0; v < thinned.size(); ++v) out.variants[v] = std::move(thinned[v]).take();
  return out;
}

std::string_view name_of(PlansBy by) {
  constexpr std::string_view names[] = {"nothing", "order", "times", "cost"};
  return names[to_index(by)];
}

std::vector<std::string_view> Runs::names() const {
  std::vector<std::string_view> all = {"simulate", "rehearse"};
  if (train) all.push_back("train");
  return all;
}

}  // namespace linerate::plan
