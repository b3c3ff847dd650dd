// The closed model of Agarwal et al. 2021, with buckets of any sizes. All times are seconds and all
// sizes bytes. An example: backward takes 100 ms alone and gamma is 1.07, so backward takes 107 ms
// under overlap. Three buckets take 20 ms each on the network and the last one 8 ms. The first
// three hide under backward, as 60 < 107, and the step takes 107 + 8 = 115 ms. On a network that is
// three times slower they take 180 and 24 ms, and the step takes 180 + 24 = 204 ms.
#include "linerate/cost/agarwal2021.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::cost {
namespace {

Line ring(const AgarwalInput& in) { return ring_all_reduce(in.ranks, in.link); }

// Time of the overlapped exchange when every bucket is r times smaller.
double overlapped_at(const AgarwalInput& in, double ratio) {
  const std::vector<double> buckets = buckets_of(in);
  const Line all_reduce = ring(in);
  double hidden = 0;
  for (std::size_t k = 0; k + 1 < buckets.size(); ++k) hidden += all_reduce(buckets[k] / ratio);
  return std::max(in.gamma * in.backward_s, hidden) + all_reduce(buckets.back() / ratio);
}

}  // namespace

std::vector<double> buckets_of(const AgarwalInput& in) {
  std::vector<double> buckets = in.buckets;
  if (buckets.empty()) {
    const double full = std::max(0.0, std::ceil(in.gradient_bytes / in.bucket_bytes) - 1);
    buckets.assign(static_cast<std::size_t>(full), in.bucket_bytes);
    buckets.push_back(in.gradient_bytes - full * in.bucket_bytes);
  }
  for (double& bytes : buckets) bytes *= in.wire_share;
  return buckets;
}

double overlapped_s(const AgarwalInput& in) { return overlapped_at(in, 1); }

double compressed_s(const AgarwalInput& in, double ratio, double encode_decode_s) {
  const double payload = in.gradient_bytes / ratio;
  const double exchange_s =
      in.gathers ? ring_all_gather(in.ranks, in.link)(in.ranks * payload) : ring(in)(payload);
  return in.backward_s + encode_decode_s + exchange_s;
}

// Finds the least ratio r for which max(B, H / r) + L / r <= (1 + epsilon) B. B is gamma times
// backward, H the time of all buckets but the last one, and L that of the last one. Without latency
// both terms of the maximum give a bound, and the larger bound is the answer:
//   B + L / r       <= (1 + epsilon) B   gives r >= L / (epsilon B)
//   H / r + L / r   <= (1 + epsilon) B   gives r >= (H + L) / ((1 + epsilon) B)
// In the example above B is 107 ms and epsilon .05. On the slower network r is at least 24 / 5.35 =
// 4.5 and 204 / 112.35 = 1.8. So the answer is 4.5, and the last bucket decides.
//
// With latency the time still falls with r, but only to the latency of all messages. So that limit
// is tested first. Then r is doubled until it suffices, and bisected until the doubles touch.
std::optional<double> required_ratio(const AgarwalInput& in) {
  const std::vector<double> buckets = buckets_of(in);
  const Line all_reduce = ring(in);
  const double budget = in.gamma * in.backward_s;
  if (all_reduce.alpha_s == 0) {
    double all = 0;
    for (const double bytes : buckets) all += all_reduce(bytes);
    const double last = all_reduce(buckets.back());
    return std::max({1.0, last / (in.epsilon * budget), all / ((1 + in.epsilon) * budget)});
  }
  const double allowed = (1 + in.epsilon) * budget;
  if (all_reduce.alpha_s > in.epsilon * budget ||
      static_cast<double>(buckets.size()) * all_reduce.alpha_s > allowed)
    return std::nullopt;
  if (overlapped_at(in, 1) <= allowed) return 1.0;
  double low = 1, high = 2;
  while (overlapped_at(in, high) > allowed && high < 1e18) low = high, high *= 2;
  if (overlapped_at(in, high) > allowed) return std::nullopt;  // only in the limit
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (overlapped_at(in, middle) > allowed ? low : high) = middle;
  }
  return high;
}

double encode_budget_s(const AgarwalInput& in, double ratio) {
  return overlapped_s(in) - compressed_s(in, ratio, 0);
}

}  // namespace linerate::cost
