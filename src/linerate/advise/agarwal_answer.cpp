#include "linerate/advise/agarwal_answer.hpp"

#include "linerate/core/error.hpp"
#include "linerate/cost/agarwal2021.hpp"

namespace linerate::advise {

void answer_agarwal(const doc::Workload& workload, const plan::Planner& planner,
                    const cost::CostModel& model, const Question& question,
                    Prediction& prediction) {
  if (!planner.bucket_bytes())
    throw UsageError("--preset agarwal2021: the paper models ddp, alone or with a codec");
  if (!(model.network_bytes_per_s() > 0))
    throw UsageError("--preset agarwal2021: the network's bandwidth is unknown; give --bandwidth");
  cost::AgarwalInput in;
  in.backward_s = workload.backward_s;
  in.gradient_bytes = static_cast<double>(workload.gradient_bytes());
  in.bucket_bytes = static_cast<double>(*planner.bucket_bytes());
  in.ranks = prediction.ranks;
  const double latency =
      question.latency ? question.latency->value : model.cluster().network.latency_s;
  in.link = {latency, 1 / model.network_bytes_per_s(), 0};
  in.gamma = question.gamma;
  in.epsilon = question.epsilon;

  double backward_s = cost::overlapped_s(in);
  if (const plan::Codec* codec = planner.codec()) {
    const double ratio = prediction.compression_ratio;
    const std::int64_t dense = workload.gradient_bytes();
    const double coding =
        codec->encode_s(dense) + codec->decode_s(dense) * (codec->gather ? in.ranks : 1);
    backward_s = codec->gather ? cost::compressed_gathered_s(in, ratio, coding)
                               : cost::compressed_s(in, ratio, coding);
    prediction.encode_budget_s = cost::overlapped_s(in) - (backward_s - coding);
  }
  prediction.required_ratio = cost::required_ratio(in);
  prediction.step_s = workload.outside_backward_s() + backward_s;
  prediction.exposed_s = backward_s - in.backward_s;
  prediction.scaling_factor = workload.one_rank_step_s() / *prediction.step_s;
}

}  // namespace linerate::advise
