// The closed model of Agarwal et al. 2021, "On the Utility of Gradient Compression"
// (arXiv 2103.00543): overlapped buckets against compression after backward.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/cost/closed_form.hpp"

namespace linerate::cost {

struct AgarwalInput {
  double backward_s = 0;                   // T_comp: one device, nothing overlapped
  double gradient_bytes = 0;               // S
  double bucket_bytes = 25.0 * (1 << 20);  // b; the last bucket is what is left
  int ranks = 1;                           // p
  LinkCost link;                           // alpha, 1 / BW
  double gamma = 1.07;               // slowdown of backward under overlap, measured 1.04 .. 1.1
  double epsilon = 0.05;             // how much slower than gamma T_comp still counts as scaling
  std::vector<double> buckets = {};  // as they are, in order; empty: of b, and the rest
  double wire_share = 1;  // of a gradient's bytes that the dense exchange sends: 1/2 with wire=fp16
  bool gathers = false;   // compressed payloads: every rank receives all of them
};

/// Bytes on the wire of each bucket; there is at least one. They are the paper's k - 1 buckets of b
/// bytes and the rest, or the buckets that were given. DDP fills buckets as gradients get ready, so
/// its last one is what the first layers left, of any size. The answers depend on it.
std::vector<double> buckets_of(const AgarwalInput& input);

/// max(gamma T_comp, sum of T_comm(b) except the last) + T_comm(last): the last bucket is complete
/// only when backward ends, so it is never hidden.
double overlapped_s(const AgarwalInput& input);

/// T_comp + T_encdec + T_comm(S / ratio). Compressed exchanges run after backward, because encoding
/// competes with backward for the device. T_comm of payloads that are gathered is alpha (p - 1) + m
/// (p - 1) / BW for m bytes a rank.
double compressed_s(const AgarwalInput& input, double ratio, double encode_decode_s);

/// The smallest ratio >= 1 at which max(gamma T_comp, sum of T_comm(b/r)) + T_comm(last/r) <=
/// (1+epsilon) gamma T_comp, overlap kept and encoding free. Closed form without latency, bisection
/// with it; absent when the latency alone is too much.
std::optional<double> required_ratio(const AgarwalInput& input);

/// What encoding and decoding may cost before compressing by `ratio` loses: T_obs - T_comp -
/// T_comm(S / ratio). Negative: it cannot pay.
double encode_budget_s(const AgarwalInput& input, double ratio);

}  // namespace linerate::cost
