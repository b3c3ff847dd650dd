// Evaluations by hand, whose figures can be checked by head.
#pragma once

#include <string>
#include <vector>

#include "linerate/doc/evaluation.hpp"

namespace linerate::compare {

inline doc::TimedRun timed(const std::string& strategy, doc::Role role,
                           std::vector<double> rounds) {
  doc::TimedRun run;
  run.strategy = strategy, run.role = role, run.round_step_s = std::move(rounds);
  run.communication_s = 0.4, run.exposed_s = 0.1, run.sent_bytes = 1e6;
  return run;
}

/// Tested every 10 steps.
inline doc::TrainedRun trained(const std::string& strategy, doc::Role role, std::uint64_t seed,
                               const std::vector<double>& accuracies) {
  doc::TrainedRun run;
  run.strategy = strategy, run.role = role, run.seed = seed, run.learning_rate = 0.05;
  run.steps = 10 * static_cast<std::int64_t>(accuracies.size());
  for (std::size_t i = 0; i < accuracies.size(); ++i)
    run.points.push_back({10 * static_cast<std::int64_t>(i + 1), 1.0 * static_cast<double>(i + 1),
                          1 - accuracies[i], accuracies[i]});
  return run;
}

/// fp32 steps of 1 s, 0.8 s on 16 bits; the A/A run is off by 2 % at most.
inline doc::Setup sample_setup() {
  doc::Setup s;
  s.model = "lenet", s.input = "1x28x28", s.data = "fashion-mnist", s.batch = 32, s.ranks = 2;
  s.transport = "mpi", s.network = "host";
  s.timed = {timed("ddp", doc::Role::fp32, {1, 1, 1}),
             timed("ddp(wire=fp16)", doc::Role::sixteen_bit, {0.8, 0.8, 0.8}),
             timed("ddp", doc::Role::repeat, {1, 1.02, 0.98}),
             timed("ddp+topk(density=0.01)", doc::Role::candidate, {0.9, 0.9, 2})};
  s.timed[3].encode_s = 0.2, s.timed[3].decode_s = 0.07, s.timed[3].is_summable = false;
  s.timed[3].options = {"density"};
  s.trained = {trained("ddp", doc::Role::fp32, 1, {0.5, 0.7, 0.8, 0.9}),
               trained("ddp", doc::Role::fp32, 2, {0.5, 0.75, 0.88, 0.88}),
               trained("ddp+topk(density=0.01)", doc::Role::candidate, 1, {0.4, 0.5, 0.6, 0.875}),
               trained("ddp+topk(density=0.01)", doc::Role::candidate, 2, {0.4, 0.5, 0.6, 0.7})};
  return s;
}

}  // namespace linerate::compare
