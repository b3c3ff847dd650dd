// Fills the inputs of the closed model (cost/closed_form.hpp) from a Workload, a strategy and a
// network. The model is of backward and exchange. What the Workload has besides, forward and
// update, is added to both.
#include "linerate/whatif/preset_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::whatif {
namespace {

/// Bytes of gradients in each bucket that DDP fills, in order.
std::vector<double> ddp_buckets(const doc::Plan& plan) {
  std::vector<double> bytes;
  for (const doc::Payload& bucket : plan.variants.back().buckets())
    bytes.push_back(static_cast<double>(bucket.elements * size_of(bucket.dtype)));
  return bytes;
}

/// The share of the gradients' bytes that travels if wire= narrows them: 1/2 for fp16.
double share_on_the_wire(const doc::Workload& workload, std::optional<DType> wire) {
  if (!wire || workload.gradients.empty()) return 1;
  double bytes = 0;
  for (const doc::Gradient& g : workload.gradients)
    bytes += static_cast<double>(g.elements * size_of(*wire));
  return bytes / static_cast<double>(workload.gradient_bytes());
}

constexpr double kStepRounding = 1e-12;

// The networks of two papers. zhang2020 has a ring without latency, with a table of what adding
// takes. agarwal2021 has a closed formula. Both know one link between all ranks, and nothing of
// nodes, contention or late ranks. What a Cluster says of those is left out, and a note says so for
// each.

// Adds costs of coding that are known from elsewhere, unless training asks or the preset has none.
doc::Cluster with_codecs(const doc::Cluster& cluster, const Question& question, CodecCosts costs) {
  if (costs == CodecCosts::own || question.preset == Preset::zhang2020) return cluster;
  const doc::CodecsOf unasked =
      question.preset == Preset::agarwal2021 ? doc::CodecsOf::papers : doc::CodecsOf::hooks;
  return plan::with_known_codecs(cluster, question.codecs.value_or(unasked));
}

}  // namespace

// The required ratio is asked for twice: for buckets as the paper cuts them, all full but the last,
// and for those that DDP fills. The last bucket is never hidden, so its size matters.
void answer_agarwal(const doc::Workload& workload, const plan::Planner& planner,
                    const cost::CostModel& model, const AgarwalOptions& options,
                    doc::Prediction& prediction) {
  if (!planner.bucket_bytes())
    throw UsageError(
        "--preset agarwal2021: the paper models ddp, alone or with a codec or compressor; name one "
        "of these strategies");
  if (!(model.network_bytes_per_s() > 0))
    throw UsageError("--preset agarwal2021: the network's bandwidth is unknown; give --bandwidth");
  cost::AgarwalInput in;
  in.backward_s = workload.backward_s;
  in.gradient_bytes = static_cast<double>(workload.gradient_bytes());
  in.bucket_bytes = static_cast<double>(*planner.bucket_bytes());
  in.ranks = prediction.ranks;
  const std::optional<Seconds>& given = model.options().latency;
  const double latency = given ? given->value : model.cluster().network.latency_s;
  in.link = {latency, 1 / model.network_bytes_per_s(), 0};
  in.wire_share = share_on_the_wire(workload, planner.wire());
  in.gamma = options.gamma;
  in.epsilon = options.epsilon;

  double backward_s = cost::overlapped_s(in);
  double computation_s = in.gamma * in.backward_s;  // what overlap slows
  if (const auto compressed = planner.compressed(workload)) {
    const double ratio = prediction.compression_ratio;
    const double coding =
        compressed->encode_s + compressed->decode_s * (compressed->gather ? in.ranks : 1);
    in.gathers = compressed->gather;
    backward_s = cost::compressed_s(in, ratio, coding);
    computation_s = in.backward_s + coding;
    prediction.encode_budget_s = cost::encode_budget_s(in, ratio);
  }
  prediction.required_ratio = cost::required_ratio(in);
  in.buckets = ddp_buckets(planner.plan(workload, model, prediction.ranks, {.first_step = false}));
  prediction.required_ratio_ddp = cost::required_ratio(in);
  prediction.step_s = doc::Bounded{workload.outside_backward_s() + backward_s};
  prediction.exposed_communication_s = std::max(0.0, backward_s - computation_s);
  if (prediction.step_s->value > 0)
    prediction.scaling_factor = workload.one_rank_step_s() / prediction.step_s->value;
}

// Takes a step apart by exclusion. The Plan is simulated with its first part alone, then with the
// first two, and so on; each part takes what its step is longer. An example: forward and backward
// alone take 100 ms, with the exchange of gradients 112 ms, and with the computation of factors 130
// ms. The exchange has 12 ms and the factors 18 ms. Communication that hides has no time of its
// own.
doc::StepParts step_parts(const doc::Plan& plan, const cost::CostModel& model, double step_s,
                          sim::Simulator& simulator) {
  doc::StepParts parts{};
  double before = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const bool whole = p + 1 == parts.size();
    const double with =
        whole ? step_s : simulator.step_s(plan::up_to(plan, static_cast<doc::StepPart>(p)), model);
    // Sums of the same durations in another order differ in their last digits.
    if (std::abs(with - before) > kStepRounding * step_s) parts[p] = with - before;
    before = with;
  }
  return parts;
}

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
  doc::Cluster whole = doc::slowed_by(with_codecs(cluster, question, costs), workload);
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
  constexpr std::string_view kNames[] = {"", "zhang2020", doc::kAgarwal2021};
  return kNames[to_index(preset)];
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
