// One document of every kind, with every key that it can have.
#pragma once

#include <string>
#include <vector>

#include "linerate/doc/advice.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/workload.hpp"
#include "small_documents.hpp"

namespace linerate::doc {

inline Workload full_workload() {
  Workload w;
  w.name = "w", w.source = "a trace";
  w.layers = {{"a", "linear", 0.1, 0.2, 10}, {"b", "conv2d", 0.2, 0.1, 20}};
  w.gradients = {{"b.weight", 12, DType::f16, 1, 1, 0.1, 3},
                 {"a.weight", 4, DType::f64, 0, 0, 0.2, 2, 1}};
  w.backward_s = 0.2, w.forward_s = 0.1, w.update_s = 0.01, w.tail_s = 0.02, w.step_s = 0.5;
  w.add_cost = {{1024, 1e-6}};
  w.blocks = {{0, BlockKind::embedding, 3, 4, 1, 8, 7, 1e-4, 2e-4},
              {1, BlockKind::kronecker, 2, 2, 5, 8, 8, 1e-3, 2e-3}};
  w.batch_per_rank = 8, w.buffer_bytes = 24, w.accumulation = 2, w.current = "ddp";
  w.step_low_s = 0.45, w.step_high_s = 0.6, w.step_origin = "from two recordings";
  w.recorded = RecordedStep{0.7, 4, 0.5, true};
  w.several_ranks = SeveralRanks{1.1, 0.04, 1.8};
  w.split_by_flops = true;
  w.other_collectives = {{Collective::all_gather, 2056, true, 2, StepPlace::forward, 0.05, 1},
                         {Collective::broadcast, 1'000'000, false, 0, StepPlace::update, 0, 4}};
  return w;
}

inline Cluster full_cluster() {
  Cluster c;
  c.name = "c", c.source = "a probe", c.ranks = 4, c.ranks_per_node = 2;
  c.network = {1e9, 1e-5, 1.1e9, true};
  c.node = Link{1e10, 1e-6, 1.2e10, true};
  c.collectives = {
      {.collective = Collective::all_gather,
       .ranks = 4,
       .dtype = DType::bf16,
       .in_place = true,
       .source = "a log",
       .segments = {{0, 1000, 1e-5, 1e-9, 0.9, 1.1}, {1000, 9000, 2e-5, 2e-9, 0.8, 1.2}},
       .switches = {{1000, 1001}},
       .samples = {{1000, 1e-5, 1e-6, 1e-4}},
       .error_mean = 0.01,
       .error_max = 0.1,
       .ranks_per_node = 2}};
  c.codecs = {{"fp16", 1e-6, 1e9, 2e-6, 2e9, CodingPlace::alone, "a paper", true, "cuda", 1e-6,
               2e-6, 1e12, 2}};
  c.second_order = SecondOrderCost{1e-4, 1e-12, {{64, 1e-4}}, 1e-5, 1e12, 1e-9, 2e-9, 1e-6, 2e12};
  c.second_order->batches = {{64, 4, 4e-4, 1e-4}};
  c.second_order->device = "cuda";
  c.contention = Contention{1.1, 1.2, 1.3, 1e-4, 2e-4};
  c.rank_speeds = {{1, 1.5, 0.01}};
  c.reduce_s_per_byte = 1e-10, c.tensor_s = 1e-6, c.memory_bytes = 1e9, c.progress_sleep_s = 1e-4;
  c.nominal = NominalNetwork{.name = "4xpcie3,tcp:10Gbit/s",
                             .law = NetworkLaw::by_node,
                             .inside = {0.5, 1e9, 1e-4, 2, 1.5, 7, true},
                             .between = {0.8, 2e9, 2e-4, 3, 2, 9, true},
                             .slowdown_high = 1.2,
                             .step_spread = 0.1};
  c.noise_floor = 0.05, c.half_sum_s_per_byte = 2e-10, c.cores = 8, c.start_delay_s = 1e-5;
  return c;
}

inline Timeline full_timeline() {
  Timeline t = small_timeline();
  t.source = "a run", t.workload = "w", t.strategy = "ddp", t.transport = "mpi", t.origin_ns = 7;
  t.line_rate_bytes_per_s = 1e9, t.noise_floor = 0.01, t.computation_slowed = false;
  t.notes = {"a note"};
  t.device = "cuda";
  t.recording = "what others read";
  return t;
}

/// Not one that makes sense, as one that has everything: every list, and what is left out at its
/// default.
inline Plan full_plan() {
  Plan plan = small_plan();
  plan.warm_up = {0};
  plan.gradient_shapes = {{10, 2}};
  plan.blocks = {{.layer = 0, .kind = BlockKind::embedding, .a = 3, .g = 2, .groups = 2}};
  TaskGraph& g = plan.variants[0];
  g.payloads.resize(1);
  g.payloads[0].of = 0, g.payloads[0].flags = 2;
  g.tasks.resize(2);
  g.pred_begin.resize(3);
  g.preds.resize(1);
  g.tasks[0] = g.tasks[1];
  for (Task& task : g.tasks) task.root = 0, task.expected = 12, task.first = task.last = 0;
  return plan;
}

inline Predictions full_predictions() {
  Prediction p;
  p.strategy = "ddp", p.ranks = 4, p.bandwidth_bit_per_s = 1.5e9, p.compression_ratio = 8;
  p.changes_convergence = true, p.step_s = Bounded{0.25, 0.2, 0.4}, p.scaling_factor = 0.4;
  p.communication_s = 0.1, p.exposed_communication_s = 0.05;
  p.parts_s = StepParts{0.1, 0.05, 0.04, 0.03, 0.035, -0.005};
  p.required_ratio = 3, p.required_ratio_ddp = 4, p.encode_budget_s = -0.01;
  return {"net", 12, 4096, 0.1, std::string(kAgarwal2021), {p}, {"a note"}};
}

inline Advice full_advice() {
  const Bounded bounded{1, 0.9, 1.1};
  const Candidate candidate{.strategy = "ddp",
                            .named = "DDP(model)",
                            .family = "ddp of any bucket",
                            .standing = Standing::does_not_fit,
                            .step_s = bounded,
                            .communication_s = 0.1,
                            .exposed_communication_s = 0.05,
                            .steps_to_target = bounded,
                            .target_s = bounded,
                            .over_current = bounded,
                            .memory_bytes = 5,
                            .trains = false,
                            .reason = "a reason"};
  return {.workload = "w",
          .cluster = "c",
          .ranks = 4,
          .bandwidth_bit_per_s = 1e9,
          .one_rank_step_s = 0.1,
          .current = "ddp",
          .verdict = AdviceVerdict::inconclusive,
          .best = "bulk",
          .sentence = "a sentence",
          .measured_step_s = 0.2,
          .confidence = Confidence::low,
          .present = "a sentence",
          .framework = "pytorch",
          .beyond = "a sentence",
          .candidates = {candidate},
          .ceilings = {{"a remedy", {0.1, 0.05, 0.2}, "a reason"}},
          .turning_points = {{"bandwidth_bit_per_s", 1e9, 2e9, "bulk", "ddp"}},
          .notes = {"a note"},
          .stragglers = {{3, 0.1, 0.2, "a reason"}}};
}

inline Evaluation full_evaluation() {
  const TimedRun timed{"ddp", Role::sixteen_bit, {0.1, 0.2}, 0.01, 0.02, 0.03, 0.04, 1e6,
                       false, {"rank"}};
  const TrainedRun trained{
      "ddp", Role::repeat, Budget::time, 7, 0.1, 30, {{10, 1, 0.5, 0.25}, {20, 2, 0.4, 0.5}},
      "nan"};
  return {{{"lenet",
            "1x28x28",
            "digits",
            32,
            2,
            "mpi",
            "host",
            1e9,
            std::string(kRehearsed),
            {timed, timed},
            {trained},
            0.8,
            {"a note"}}}};
}

struct FullDocument {
  const char* kind;
  std::string text;
  /// The text, written again after it was read.
  std::string (*reread)(const std::string& text);
  /// Keys whose values may be below 0.
  std::vector<std::string> signed_keys;
};

template <auto from_json>
std::string reread(const std::string& text) {
  return to_json(from_json(text, "file"));
}

inline std::vector<FullDocument> full_documents() {
  return {
      {"workload", to_json(full_workload()), reread<workload_from_json>, {"layer", "registration"}},
      {"cluster",
       to_json(full_cluster()),
       reread<cluster_from_json>,
       {"alpha_s", "beta_s_per_byte"}},
      {"plan", to_json(full_plan()), reread<plan_from_json>, {"first", "last", "layer"}},
      // times begin anywhere; -1 is none, or all, of what an event's column counts
      {"timeline",
       to_json(full_timeline()),
       reread<timeline_from_json>,
       {"events", "steps", "samples", "origin_ns"}},
      {"predictions",
       to_json(full_predictions()),
       reread<predictions_from_json>,
       {"parts_s", "encode_budget_s", "compression_ratio", "scaling_factor", "required_ratio"}},
      {"advice",
       to_json(full_advice()),
       reread<advice_from_json>,
       {"value", "low", "high", "step_s", "late_s", "one_rank_step_s", "memory_bytes",
        "bandwidth_bit_per_s"}},
      {"evaluation", to_json(full_evaluation()), reread<evaluation_from_json>, {"test_loss"}},
  };
}

}  // namespace linerate::doc
