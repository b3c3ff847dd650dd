// A setup that trains: step times of strategies that take turns, then whole trainings for accuracy.
// No LibTorch in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/evaluate/run/contest.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::evaluate {

struct MeasuredOptions {
  ContestOptions contest;
  /// Model, data, batch, optimizer, schedule, seed (the first one). `steps` is of each training for
  /// accuracy; what is about checkpoints and files is left out.
  zoo::TrainOptions train;
  int seeds = 0;  // trainings of each strategy; 0: step times alone
  std::optional<double> target_accuracy;
  bool equal_time = true;               // also trainings within fp32's time
  std::map<std::string, double> rates;  // learning rate by candidate, as in contest.candidates
  std::string network = "host";
  std::optional<BytesPerSecond> line_rate;  // of the network; a label
};

/// Without runs: what tells it from others. Throws UsageError for options that nothing can be made
/// of.
doc::Setup empty_setup(const comm::Communicator& communicator, const MeasuredOptions& options);

/// Step times use a learning rate so small that no candidate diverges. Complete and alike on every
/// rank. Collective. Throws as zoo::train().
doc::Setup measured_setup(comm::Communicator& communicator, const MeasuredOptions& options,
                          const std::function<void(const std::string&)>& progress = {});

}  // namespace linerate::evaluate
