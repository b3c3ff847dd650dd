// Small Plans written by hand, and memory for their payloads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

/// Observed, in the compute lane.
inline doc::Task backward_of(std::int32_t gradient) {
  return {.kind = doc::TaskKind::backward,
          .origin = doc::Origin::observed,
          .resource = doc::Resource::compute,
          .subject = doc::Subject::gradients,
          .first = gradient,
          .last = gradient};
}

/// An all-reduce of operation 0.
inline doc::Task sum_of(std::int32_t payload, std::int64_t elements) {
  return {.kind = doc::TaskKind::all_reduce,
          .resource = doc::Resource::network,
          .subject = doc::Subject::payloads,
          .operation = 0,
          .first = payload,
          .last = payload,
          .bytes = 4 * elements};
}

/// A bucket of gradient 0, which has one element, and no tasks.
inline doc::TaskGraph bucket_of_one() {
  doc::TaskGraph graph;
  graph.name = "steady";
  graph.members = {0};
  graph.payloads.push_back({.end = 1, .elements = 1, .padded = 1});
  return graph;
}

/// Gradients 0..n-1, one element each; buckets of `sizes` gradients, one all-reduce a bucket.
inline doc::TaskGraph exchange_graph(const std::string& name, const std::vector<int>& sizes) {
  doc::TaskGraph graph;
  graph.name = name;
  std::int32_t position = 0;
  for (const int size : sizes) {
    doc::Payload bucket;
    bucket.begin = position;
    std::uint32_t last = 0;
    for (int i = 0; i < size; ++i, ++position) {
      graph.members.push_back(position);
      last = graph.add(backward_of(position));
    }
    bucket.end = position;
    bucket.elements = bucket.padded = size;
    const auto index = static_cast<std::int32_t>(graph.payloads.size());
    graph.payloads.push_back(bucket);
    graph.add(sum_of(index, size), last);
  }
  return graph;
}

/// Operation 0 is the sum, 1 is "note".
inline std::shared_ptr<doc::Plan> plan_of(int ranks, std::vector<doc::TaskGraph> variants,
                                          int gradients) {
  auto plan = std::make_shared<doc::Plan>();
  plan->strategy = "test";
  plan->ranks = ranks;
  plan->operations = {{"sum", {}}, {"note", {}}};
  plan->variants = std::move(variants);
  for (int g = 0; g < gradients; ++g) plan->gradient_names.push_back("g" + std::to_string(g));
  return plan;
}

/// A task of operation "note" on payload 0.
inline doc::Task note_task(doc::TaskKind kind, doc::Resource lane) {
  return {.kind = kind,
          .resource = lane,
          .subject = doc::Subject::payloads,
          .operation = 1,
          .first = 0,
          .last = 0};
}

/// One float a gradient, in member order of the graph.
struct FloatPayloads : Payloads {
  std::vector<float> values;
  comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override {
    const doc::Payload& bucket = graph.payloads[static_cast<std::size_t>(payload)];
    return {values.data() + bucket.begin, {bucket.padded}, bucket.dtype};
  }
};

}  // namespace linerate::exec
