// Baselines are tuned, then all strategies take turns: round by round, so that what slows the
// machine slows all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/timeline.hpp"

namespace linerate::evaluate {

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

}  // namespace linerate::evaluate
