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
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/whatif/agarwal_options.hpp"

namespace linerate::whatif {

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
  std::string all_reduce{cost::kRingOrTree};  // if nothing was measured; presets take the ring
  AgarwalOptions agarwal;                     // of that preset
};

/// Throws UsageError for combinations that do not exist, InputError for what the documents lack.
/// Strategies, ranks, bandwidths, ratios, each as given and once, the last fastest.
doc::Predictions ask(const doc::Workload& workload, const doc::Cluster& cluster,
                     const Question& question);

/// The Plan for the one combination that a question asks about, and what prices it.
struct Planned {
  doc::Plan plan;
  cost::CostModel model;
  std::vector<std::string> notes = {};  // on what the Plan does not do as its strategy says
};
/// `training`: with all that `linerate train` does in a step besides exchanging gradients, and the
/// variants it chooses from. Throws UsageError when the question holds several combinations, or a
/// closed formula, or asks for the training of what cannot be trained.
Planned plan_one(const doc::Workload& workload, const doc::Cluster& cluster,
                 const Question& question, bool training = false);

/// The predicted Timeline of what plan_one() plans. Throws as that does.
doc::Timeline timeline_of(const Planned& planned, const doc::Workload& workload);

/// For a picture of a question's first combination; absent if there is none (a closed formula) or
/// it cannot be drawn (thousands of ranks).
std::optional<doc::Timeline> first_timeline(const doc::Workload& workload,
                                            const doc::Cluster& cluster, Question question);

/// How long one of its tasks is predicted to take by itself.
double seconds_of(const Planned& planned, const doc::Task& task);

}  // namespace linerate::whatif
