// The options of what is trained, for `train` and `evaluate` alike.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/cli/verb.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/verbs/contest.hpp"
#include "linerate/verbs/verbs.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::cli {

/// Data set, optimizer, seed and threads, with the defaults that `options` has; `input` gets the
/// text of --input. The model and what a verb does with it are options of its own.
void add_training_options(CLI::App& verb, zoo::TrainOptions& options, std::string& input);
/// --timeout; `default_text` is what `timeout` is without it.
void add_timeout_option(CLI::App& verb, Duration& timeout, const std::string& default_text);

// What the programs that rehearse and that train share of linerate evaluate: the options, and all
// but making setups.

/// As typed; the library's types follow in contest_of() and in what makes setups.
struct EvaluateArguments {
  /// Contests compare equal steps, and a falling rate would decide by itself when a target is
  /// reached.
  EvaluateArguments() { train.schedule = "constant"; }

  // What is trained.
  zoo::TrainOptions train;
  std::vector<std::string> models;
  std::string input, batches = "64";
  std::vector<std::string> rates;
  // What is compared.
  verbs::ContestOptions contest;
  int seeds = 3;
  std::optional<double> target_accuracy;
  bool no_equal_time = false;
  // Where.
  std::string label;
  std::optional<BytesPerSecond> bandwidth, link;
  Duration timeout = std::chrono::seconds(300);
  std::optional<int> ranks;
  bool rehearse = false;
  std::string workload, scale, cluster, output;
  std::optional<Seconds> step_time;
  bool append = false, json = false;
};

/// `linerate evaluate` with its options and help, in either program. `run` gets what goes together
/// and a contest that is checked; else UsageError.
void add_evaluate_verb(CLI::App& app, void (*run)(const EvaluateArguments&));

/// Setups on these ranks and the network of `place`.
using MakeSetups = std::function<std::vector<verbs::NewSetup>(
    comm::Communicator& communicator, const doc::Setup& place, const verbs::Progress& progress)>;
/// Makes the ranks' communicator, runs the setups and prints all of the file's, as text or JSON.
void run_evaluation(const EvaluateArguments& arguments, const MakeSetups& make);

// linerate calibrate [--from LOG] -o cluster.json. Its verb stands in both programs: what K-FAC
// costs, and what anything costs on a device, is measured by LibTorch.

using CalibrateArguments = Given<verbs::CalibrateOptions>;

void add_calibrate_verb(CLI::App& app, void (*run)(const CalibrateArguments&));
/// `probes`: for needs_torch(), else empty.
void run_calibrate(const CalibrateArguments& arguments, const verbs::TorchProbes& probes = {});

}  // namespace linerate::cli
