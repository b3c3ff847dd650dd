// Textbook costs of one collective: alpha seconds a message step, beta seconds a byte on a link,
// gamma seconds to reduce a byte. All are straight lines in the size.
#pragma once

#include <optional>
#include <vector>

#include "linerate/core/registry.hpp"
#include "linerate/core/units.hpp"

namespace linerate::cost {

/// One kind of link as the formulas see it.
struct LinkCost {
  double alpha_s = 0;           // per message step
  double beta_s_per_byte = 0;   // 1 / bandwidth, per direction
  double gamma_s_per_byte = 0;  // reducing, unless it overlaps with the transfer
};

/// seconds = alpha_s + beta_s_per_byte * S, with S as core/dtype.hpp defines it.
struct Line {
  double alpha_s = 0;
  double beta_s_per_byte = 0;

  double operator()(double bytes) const { return alpha_s + beta_s_per_byte * bytes; }
};

/// Patarasuk & Yuan 2009: 2(n-1) steps of S/n.
Line ring_all_reduce(int ranks, const LinkCost& link);
Line ring_reduce_scatter(int ranks, const LinkCost& link);
Line ring_all_gather(int ranks, const LinkCost& link);
/// Thakur et al. 2005: ceil(log2 n) steps of the whole S; for short messages.
Line recursive_doubling_all_reduce(int ranks, const LinkCost& link);
/// Rabenseifner 2004: the ring's bytes in 2 ceil(log2 n) steps.
Line halving_doubling_all_reduce(int ranks, const LinkCost& link);
/// Sanders, Speck & Traeff 2009, pipelined in chunks of q = 512 KiB: 2 ceil(log2 n) (alpha + q
/// beta) + 2 S beta.
Line double_tree_all_reduce(int ranks, const LinkCost& link);
Line binomial_broadcast(int ranks, const LinkCost& link);
/// Rank 0 receives n-1 messages in turn and sends n-1 in turn.
Line parameter_server_all_reduce(int ranks, const LinkCost& link);

using AllReduceForm = Line (*)(int ranks, const LinkCost&);
/// The two halves of any all-reduce. Together they take as long as the all-reduce; the first one
/// has all its additions. The halves of a ring are ring_reduce_scatter and ring_all_gather.
Line reduce_scatter_half(AllReduceForm form, int ranks, const LinkCost& link);
Line all_gather_half(AllReduceForm form, int ranks, const LinkCost& link);

/// The same two trees with the whole message as their chunk: 2 ceil(log2 n) (alpha + S beta), for
/// messages shorter than a chunk.
Line short_double_tree_all_reduce(int ranks, const LinkCost& link);

/// The all-reduce algorithms by name, for `linerate list cost-models` and CostOptions::all_reduce.
const Registry<AllReduceForm>& all_reduce_forms();

// The closed model of Agarwal et al. 2021, "On the Utility of Gradient Compression"
// (arXiv 2103.00543): overlapped buckets against compression after backward.

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
