// A setup of an Evaluation that trains: step times of strategies that take turns, then whole
// trainings for accuracy. No LibTorch in this header.
#pragma once

#include <map>
#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/evaluate/contest.hpp"
#include "linerate/evaluate/run_setups.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

struct TrainedSetupOptions {
  evaluate::ContestOptions contest;
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
evaluate::NewSetup trained_setup(comm::Communicator& communicator, TrainedSetupOptions options,
                                 doc::Setup place, const evaluate::Progress& progress = {});

}  // namespace linerate::zoo
