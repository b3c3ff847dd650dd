// Documents that have a value of every kind.
#pragma once

#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"

namespace linerate::doc {

inline Timeline small_timeline() {
  Timeline t;
  t.mode = "trained";
  t.ranks = 2;
  t.names = {"conv1"};
  t.parameter_names = {"w", "b"};
  t.parameter_sets = {{0, 1}};
  t.groups = {{"tp", 2}};
  t.events = {{TaskKind::all_reduce, Resource::network, 1, 3, 0, 0, 5, 10, 30, 400, 0}};
  t.steps = {{1, 3, 0, 100, "steady"}};
  t.counters = {{"cpu_share", 1, 0.1, {{0, 0.5}, {100, 0.75}}}};
  t.one_rank_step_s = 0.1;
  return t;
}

// Backward and an all-reduce of its bucket among ranks {0, 1} and {2, 3}; rank 0 of each part sends
// flags; a timer.
inline Plan small_plan() {
  Plan plan;
  plan.strategy = "bulk";
  plan.workload = "tiny";
  plan.ranks = 4;
  plan.gradient_names = {"w"};
  plan.gradient_layer = {0};
  plan.layer_names = {"fc"};
  TaskGraph g;
  g.name = "steady";
  g.members = {0};
  g.payloads = {
      {.begin = 0, .end = 1, .elements = 10, .padded = 12},
      {.content = Content::encoded, .dtype = DType::f16, .of = 0, .elements = 10, .padded = 12},
      {.content = Content::flags, .dtype = DType::u8, .elements = 1, .padded = 1}};
  const auto backward = g.add({.kind = TaskKind::backward,
                               .origin = Origin::observed,
                               .resource = Resource::compute,
                               .subject = Subject::gradients,
                               .operation = plan.operation({"autograd", {}}),
                               .first = 0,
                               .last = 0,
                               .seconds = 0.5});
  const std::int32_t node = plan.group({"node", {{0, 1}, {2, 3}}});
  g.add({.kind = TaskKind::all_reduce,
         .resource = Resource::network,
         .subject = Subject::payloads,
         .wire = DType::f16,
         .bound = true,
         .operation = plan.operation({"sum", {{"scale", "0.5"}}}),
         .group = node,
         .first = 1,
         .last = 1,
         .bytes = 24},
        backward);
  g.add({.kind = TaskKind::broadcast,
         .resource = Resource::network,
         .subject = Subject::payloads,
         .wire = DType::u8,
         .operation = plan.operation({"move", {}}),
         .group = node,
         .root = 1,
         .first = 2,
         .last = 2,
         .bytes = 1},
        backward);
  g.add({.kind = TaskKind::host,
         .resource = Resource::host,
         .operation = plan.operation({"timer", {}}),
         .seconds = 5e-3});
  g.next_step = {{1, 0, 0}};
  plan.variants = {g};
  return plan;
}

}  // namespace linerate::doc
