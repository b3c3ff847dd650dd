// What would another strategy, rank count, bandwidth or compression ratio do? Every combination is
// planned and simulated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/core/units.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/sim/simulate.hpp"

namespace linerate::advise {

enum class Preset {
  none,        // the full simulator over the Cluster
  zhang2020,   // ring without latency, AddEst on the dense size, encoding free (arXiv 2006.10103)
  agarwal2021  // that paper's closed model (arXiv 2103.00543); cost/agarwal2021.hpp
};

/// Empty lists take what the Cluster, the strategy or the preset says.
struct Question {
  Preset preset = Preset::none;
  std::vector<doc::Strategy> strategies;
  std::vector<int> ranks;
  std::vector<BytesPerSecond> bandwidths;
  std::vector<double> compression_ratios;
  std::optional<Seconds> latency;
  std::string all_reduce = "ring";
  double gamma = 1.07;    // agarwal2021
  double epsilon = 0.05;  // agarwal2021
};

/// One combination. Absent means unknown or undefined.
struct Prediction {
  std::string strategy;
  int ranks = 1;
  std::optional<double> bandwidth_bit_per_s;
  double compression_ratio = 1;
  bool changes_convergence = false;  // of the strategy alone: a ratio swept beside it is not in it
  std::optional<double> step_s;      // absent: the Workload does not know its one-rank step
  std::optional<sim::Interval> interval;
  std::optional<double> scaling_factor;  // T_1 / T_n, the same batch per rank
  std::optional<double> exposed_s;       // T_n - T_1
  // agarwal2021 alone:
  std::optional<double> required_ratio;   // absent: no ratio is enough
  std::optional<double> encode_budget_s;  // what encode + decode may cost at this ratio
};

struct Answer {
  /// Strategies, ranks, bandwidths, ratios, each as given, the last fastest.
  std::vector<Prediction> predictions;
  std::vector<std::string> notes;  // what is assumed or not exact, for people; each once
};

/// Throws UsageError for what cannot be combined, InputError for what the documents lack.
Answer ask(const doc::Workload& workload, const doc::Cluster& cluster, const Question& question);

/// The Plan behind the one combination that a question asks about, and what prices it.
struct Planned {
  doc::Plan plan;
  cost::CostModel model;
};
/// `training`: with all that `linerate train` does in a step beside exchanging gradients, and the
/// variants it chooses from. Throws UsageError when the question holds several combinations, or a
/// closed formula, or asks for the training of what cannot be trained.
Planned plan_one(const doc::Workload& workload, const doc::Cluster& cluster,
                 const Question& question, bool training = false);

/// How long one of its tasks is predicted to take, nothing else going on.
double seconds_of(const Planned& planned, const doc::Task& task);

}  // namespace linerate::advise
