// The networks of two papers. zhang2020 has a ring without latency, with a table of what adding
// takes. agarwal2021 has a closed formula. Both know one link between all ranks, and nothing of
// nodes, contention or late ranks. What a Cluster says of those is left out, and a note says so for
// each.
#include "linerate/whatif/preset_model.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "linerate/cost/add_table.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/plan/codec_costs.hpp"

namespace linerate::whatif {
namespace {

// Adds costs of coding that are known from elsewhere, unless training asks or the preset has none.
doc::Cluster with_codecs(const doc::Cluster& cluster, const Question& question, CodecCosts costs) {
  if (costs == CodecCosts::own || question.preset == Preset::zhang2020) return cluster;
  const doc::CodecsOf unasked =
      question.preset == Preset::agarwal2021 ? doc::CodecsOf::papers : doc::CodecsOf::hooks;
  return plan::with_known_codecs(cluster, question.codecs.value_or(unasked));
}

}  // namespace

// What the paper compares with; else what the job uses.
doc::Strategy default_strategy(Preset preset, const doc::Workload& workload) {
  if (preset == Preset::none && !workload.current.empty())
    return doc::parse_strategy(workload.current);
  return doc::parse_strategy(preset == Preset::zhang2020 ? "horovod" : "ddp");
}

// The papers' models have one flat ring. So of the Cluster only its link and the costs of coding
// and K-FAC count, and left_out() says what does not.
cost::CostModel cost_model(const doc::Workload& workload, const doc::Cluster& cluster,
                           const Question& question, CodecCosts costs) {
  cost::CostOptions options;
  options.latency = question.latency;
  const bool chosen = question.all_reduce != Question().all_reduce;
  if (question.preset == Preset::none || chosen) options.all_reduce = question.all_reduce;
  if (!question.bandwidths.empty()) options.bandwidth = question.bandwidths.front();
  doc::Cluster whole = with_codecs(cluster, question, costs);
  if (question.preset == Preset::none) return cost::CostModel(std::move(whole), std::move(options));
  doc::Cluster flat;
  flat.name = cluster.name;
  flat.ranks = cluster.ranks;
  flat.network = cluster.network;
  flat.network.line_rate_bytes_per_s = 0;
  flat.codecs = std::move(whole.codecs);
  flat.tensor_s = cluster.tensor_s;
  flat.second_order = cluster.second_order;
  if (question.preset == Preset::zhang2020) {
    flat.network.latency_s = 0;
    if (!workload.add_cost.empty())
      options.add_table = std::make_shared<const cost::AddTable>(workload.add_cost);
  }
  return cost::CostModel(std::move(flat), std::move(options));
}

std::string_view name_of(Preset preset) {
  switch (preset) {
    case Preset::zhang2020:
      return "zhang2020";
    case Preset::agarwal2021:
      return doc::kAgarwal2021;
    case Preset::none:
      break;
  }
  return "";
}

// One note for each thing that the Cluster has and the model ignores.
std::vector<std::string> left_out(const doc::Workload& workload, const doc::Cluster& cluster,
                                  Preset preset) {
  std::vector<std::string> notes;
  if (preset == Preset::none) return notes;
  const auto add = [&](bool there, std::string_view what) {
    if (there)
      notes.push_back(
          fmt::format("{} has no effect under {}, because that model is a ring over one link", what,
                      name_of(preset)));
  };
  add(!cluster.collectives.empty(), "what the Cluster measured of collectives");
  add(cluster.node && cluster.ranks_per_node > 1, "the Cluster's link inside a node");
  add(cluster.contention.has_value(), "the Cluster's contention");
  add(!cluster.rank_speeds.empty(), "the Cluster's slow ranks");
  add(cluster.start_delay_s > 0, "the Cluster's start delay");
  add(preset == Preset::zhang2020 && cluster.network.latency_s > 0, "the Cluster's latency");
  if (preset == Preset::agarwal2021 && !workload.other_collectives.empty())
    notes.push_back(
        "the Workload's other_collectives have no effect under agarwal2021, because that model is "
        "of gradients alone");
  if (preset == Preset::zhang2020 && workload.add_cost.empty())
    notes.push_back(
        "the Workload does not say what adding gradients costs (add_cost), so zhang2020 charges "
        "nothing for it");
  return notes;
}

}  // namespace linerate::whatif
