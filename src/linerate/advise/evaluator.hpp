// One strategy on one network, planned and simulated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::advise {

/// How much run() finds out: the step alone, or also its interval, its communication and the effect
/// of shared cores. The latter take more simulations, so searches ask for the value first.
enum class Detail { value, full };

struct Outcome {
  doc::Bounded step_s;
  double communication_s = 0;  // network time a step, hidden or not
  doc::Plan plan;
  plan::Traits traits;
  std::optional<double> crowded_s;  // sim/simulator.hpp
  std::vector<std::string> notes;   // on its compressor (Planner::coding_caveats)
  bool coding_is_bound = false;     // Planner::coding_is_bound()
  double coding_spread = 1;         // Planner::coding_spread()
};

/// Borrows the Workload. Pure: the same question has the same answer, whichever worker is asked.
class Evaluator {
 public:
  /// Throws UsageError or InputError when the Cluster and the options price nothing.
  Evaluator(const doc::Workload& workload, const doc::Cluster& cluster, int ranks,
            std::optional<Seconds> latency, OnProgress on_progress = {});

  /// Absent bandwidth: the Cluster's. Throws UsageError for what cannot be planned. `worker`: below
  /// workers(), whose memory it works in; not the same one in two calls at once.
  Outcome run(const doc::Strategy& strategy, std::optional<BytesPerSecond> bandwidth,
              std::size_t worker = 0, Detail detail = Detail::full);
  /// What Detail::full has beyond Detail::value, of a run at this bandwidth.
  void complete(Outcome& outcome, std::optional<BytesPerSecond> bandwidth, std::size_t worker = 0);
  /// How many may run at once: a thread costs more than it saves if gradients are few.
  std::size_t workers() const { return simulators_.size(); }
  /// Counts every run(), whether it throws or not.
  Progress& progress() { return progress_; }

  const doc::Workload& workload() const { return workload_; }
  const doc::Cluster& cluster() const { return model_.cluster(); }
  int ranks() const { return ranks_; }
  std::optional<Seconds> latency() const { return latency_; }
  /// What prices the collectives at this bandwidth; absent: the Cluster's.
  cost::CostModel model_at(std::optional<BytesPerSecond> bandwidth) const;
  /// The network's line, per direction; 0: unknown.
  double line_bytes_per_s() const { return model_.line_bytes_per_s(); }

 private:
  const doc::Workload& workload_;
  cost::CostModel model_;
  int ranks_;
  std::optional<Seconds> latency_;
  std::vector<sim::Simulator> simulators_;  // by worker
  Progress progress_;
};

/// The time that the slowest rank computes in a step. Communication hides in no more than that.
doc::Bounded slowest_rank_s(const Evaluator& evaluator);

}  // namespace linerate::advise
