// Trainings of well under a second, on ranks that are threads.
#pragma once

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

/// 100 samples: on two ranks an epoch has four steps.
inline TrainOptions mlp(std::optional<std::int64_t> epochs = {}) {
  TrainOptions o;
  o.model = "mlp";
  o.input = models::Shape{1, 8, 8};
  o.classes = 10;
  o.samples = 100;
  o.batch = 16;
  o.epochs = epochs;
  o.threads = 1;
  return o;
}

/// Rank 0's report.
inline TrainReport run(const TrainOptions& options, int ranks) {
  TrainReport report;
  comm::run_ranks(ranks, [&](comm::Communicator& c) {
    const TrainReport mine = train(options, c);
    if (c.rank() == 0) report = mine;
  });
  return report;
}

}  // namespace linerate::zoo
