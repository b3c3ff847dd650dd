// Answers to a Question: every combination is planned and simulated.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::whatif {

/// Predicts every combination of strategies, ranks, bandwidths and ratios, in this order, the last
/// fastest. Each value counts once, in the order given. Throws UsageError for combinations that do
/// not exist, InputError for what the documents lack.
[[nodiscard]] doc::Predictions ask(const doc::Workload& workload, const doc::Cluster& cluster,
                                   const Question& question);

/// The Plan for the one combination that a question asks about, and what prices it.
struct Planned {
  doc::Plan plan;                       // of the combination
  cost::CostModel model;                // of its Cluster, with the question's overrides
  std::vector<std::string> notes = {};  // on what the Plan does not do as its strategy says
};
/// Plans the only combination of a question. With `training` the Plan has all that `linerate train`
/// does in a step besides exchanging gradients, and the variants from which it chooses. Throws
/// UsageError when the question holds several combinations, or a closed formula, or asks for the
/// training of what cannot be trained.
[[nodiscard]] Planned plan_one(const doc::Workload& workload, const doc::Cluster& cluster,
                               const Question& question, bool training = false);

/// The predicted Timeline of what plan_one() plans. Throws as that does.
[[nodiscard]] doc::Timeline timeline_of(const Planned& planned, const doc::Workload& workload);

/// The question that asks for one of the predictions of ask() alone: the combination at this
/// position.
[[nodiscard]] Question only(const doc::Workload& workload, const doc::Cluster& cluster,
                            const Question& question, std::size_t prediction);

/// For a picture of a question's first combination; absent if there is none (a closed formula) or
/// it cannot be drawn (thousands of ranks).
[[nodiscard]] std::optional<doc::Timeline> first_timeline(const doc::Workload& workload,
                                                          const doc::Cluster& cluster,
                                                          Question question);

/// How long one of its tasks is predicted to take by itself.
[[nodiscard]] double seconds_of(const Planned& planned, const doc::Task& task);

}  // namespace linerate::whatif
