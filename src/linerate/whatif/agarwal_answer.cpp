// Fills the inputs of the closed model (cost/agarwal2021.hpp) from a Workload, a strategy and a
// network. The model is of backward and exchange. What the Workload has besides, forward and
// update, is added to both.
#include "linerate/whatif/agarwal_answer.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/cost/agarwal2021.hpp"

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

}  // namespace linerate::whatif
