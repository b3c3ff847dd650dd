// A training that pauses between rounds of steps, so that several take turns on one communicator.
// No LibTorch in this header.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/verbs/contest.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

/// A training that is recorded without a timer of layers, which costs time. A step has one forward
/// and one backward event, and the tasks that the Plan executes.
class TimedTraining {
 public:
  /// Collective; `name` tells its collectives from those of others. Ignores checkpoints, records
  /// and tests in the options. Throws as train().
  TimedTraining(const TrainOptions& options, comm::Communicator& communicator, std::string name);
  ~TimedTraining();
  TimedTraining(const TimedTraining&) = delete;
  TimedTraining& operator=(const TimedTraining&) = delete;

  /// Runs steps that do not count, then passes over the rest of a compressor's warm-up (usually
  /// dense steps), so that the steps that count are of the Plan's cycle. Collective.
  void warm_up(std::int64_t steps);
  /// One step that does not count, since others ran before, then `steps` that do. Collective.
  verbs::Round run(std::int64_t steps);

  std::int64_t parameters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A setup of an Evaluation that trains: step times of strategies that take turns, then whole
// trainings for accuracy. No LibTorch in this header.

struct TrainedSetupOptions {
  verbs::ContestOptions contest;
  /// Model, data, batch, optimizer, schedule, seed (the first one). `steps` is of each training for
  /// accuracy; checkpoints and files are ignored.
  TrainOptions train;
  int seeds = 0;                        // trainings of each strategy; 0: step times alone
  bool equal_time = true;               // also trainings within fp32's time
  std::map<std::string, double> rates;  // learning rate by candidate, as in contest.candidates
};

/// A setup of this model on the ranks and the network of `place`. Step times use a learning rate so
/// small that no candidate diverges. Throws UsageError for options that do not fit together; its
/// run throws as train().
verbs::NewSetup trained_setup(comm::Communicator& communicator, TrainedSetupOptions options,
                              doc::Setup place, const verbs::Progress& progress = {});

}  // namespace linerate::zoo
