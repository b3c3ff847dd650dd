// Baselines are tuned, then all strategies take turns: round by round, so that what slows the
// machine slows all of them.
#pragma once

#include <functional>
#include <memory>
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

/// One strategy that runs a round whenever its turn comes.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual Round run(std::int64_t steps) = 0;
};

struct ContestOptions {
  std::string exchange = "ddp";  // of the baselines and in front of compressors
  std::string wire = "fp16";     // of the 16-bit baseline
  /// Compressors, "topk(density=0.01)", or whole strategies, "dear+fp16".
  std::vector<std::string> candidates;
  int rounds = 7;
  int tuning_rounds = 3;
  std::int64_t steps = 20;  // of a round
};

/// What of a run is not the contest's own business.
struct Field {
  /// Makes a strategy ready to run. Collective.
  std::function<std::unique_ptr<Contestant>(const std::string& strategy)> make;
  std::int64_t gradient_bytes = 0;
  std::function<void(const std::string&)> progress = {};  // what is being done, for people
};

/// The canonical text of a candidate: a compressor stands behind `exchange`. Throws UsageError for
/// what is neither.
std::string strategy_of(const std::string& candidate, const std::string& exchange);

/// Throws UsageError for options that no contest can be made of, before anything runs: unknown
/// names, an exchange that compresses, one strategy twice.
void check(const ContestOptions& options);

/// fp32, 16-bit, the repeat of fp32, the candidates; the same on every rank. Bucket sizes are tried
/// for both baselines where the exchange has them and its text names none; candidates take fp32's.
/// Collective.
std::vector<doc::TimedRun> contest(comm::Communicator& communicator, const ContestOptions& options,
                                   const Field& field);

}  // namespace linerate::evaluate
