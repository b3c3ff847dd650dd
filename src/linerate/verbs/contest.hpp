// Baselines are tuned, then all strategies take turns: round by round, so that what slows the
// machine slows all of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::verbs {

/// Some steps of one strategy in a row.
struct Round {
  doc::Timeline timeline;  // of all ranks on rank 0; empty elsewhere
  double sent_bytes = 0;   // by a rank in a step, mean over ranks
};

/// Runs a round of one strategy. Collective.
using RunRound = std::function<Round(std::int64_t steps)>;
/// Makes a strategy ready to run. Collective.
using Prepare = std::function<RunRound(const std::string& strategy)>;
/// Reports what is being done, for people.
using Progress = std::function<void(const std::string&)>;

struct ContestOptions {
  std::string exchange = "ddp";  // of the baselines and of candidates that name none
  std::string wire = "fp16";     // of the 16-bit baseline
  /// Compressors, "topk(density=0.01)", or whole strategies, "dear+fp16".
  std::vector<std::string> candidates = {};
  int rounds = 7;
  int tuning_rounds = 3;
  std::int64_t steps = 20;  // of a round
};

/// The canonical text of a candidate: a compressor joins `exchange`. Throws UsageError if it is
/// neither.
std::string strategy_of(const std::string& candidate, const std::string& exchange);

/// Throws UsageError for options that no contest can be made of, before anything runs: unknown
/// names, an exchange that compresses, one strategy twice.
void check(const ContestOptions& options);

/// Times fp32, 16-bit, the repeat of fp32, and the candidates. The result is the same on every
/// rank. Bucket sizes are tried for both baselines if the exchange has them and its text names
/// none; candidates take fp32's. Collective.
std::vector<doc::TimedRun> contest(comm::Communicator& communicator, const ContestOptions& options,
                                   std::int64_t gradient_bytes, const Prepare& prepare,
                                   const Progress& progress = {});

// One launch's setups, and the file that a loop over networks and rank counts fills.

struct NewSetup {
  doc::Setup setup;  // what tells it from others
  /// Adds the runs, alike on every rank. Collective.
  std::function<void(doc::Setup&)> run;
};

/// Runs the setups one after the other and returns all setups, those read included; complete on
/// rank 0. Rank 0 writes each setup to the file as soon as it is done, because a later one may
/// fail. An empty path: no file. With `extend` they join the setups of an existing file; without it
/// the file must not exist. Before anything is measured it tries the folder, and throws UsageError
/// for a setup of the same title as one in the file. An error of rank 0 is thrown on every rank.
/// Collective.
doc::Evaluation run_setups(comm::Communicator& communicator, const std::filesystem::path& path,
                           bool extend, std::vector<NewSetup> setups);

// A setup whose computation waits: step times alone, on the network at hand.

/// For this Workload on the ranks and the network of `place`; plans are made for its line rate.
/// Encoding and decoding wait as long as the Cluster's codecs say (calibrate --codecs); a note
/// names those that it does not know, which cost nothing here.
NewSetup rehearsed_setup(comm::Communicator& communicator, const doc::Workload& workload,
                         const doc::Cluster& cluster, const ContestOptions& options,
                         doc::Setup place, const Progress& progress = {});

}  // namespace linerate::verbs
