// Textbook costs of one collective: alpha seconds a message step, beta seconds a byte on a link,
// gamma seconds to reduce a byte. All are straight lines in the size.
#pragma once

#include "linerate/core/collective.hpp"
#include "linerate/core/registry.hpp"
#include "linerate/core/units.hpp"

namespace linerate::cost {

/// One kind of link as the formulas see it.
struct LinkCost {
  double alpha_s = 0;           // per message step
  double beta_s_per_byte = 0;   // 1 / bandwidth, per direction
  double gamma_s_per_byte = 0;  // reducing, unless it overlaps with the transfer
};

/// seconds = alpha_s + beta_s_per_byte * S, with S as core/collective.hpp defines it.
struct Line {
  double alpha_s = 0;
  double beta_s_per_byte = 0;

  double operator()(double bytes) const { return alpha_s + beta_s_per_byte * bytes; }
};

/// Patarasuk & Yuan 2009: 2(n-1) steps of S/n.
Line ring_all_reduce(int ranks, const LinkCost& link);
Line ring_reduce_scatter(int ranks, const LinkCost& link);
Line ring_all_gather(int ranks, const LinkCost& link);
/// S is the send buffer of one rank.
Line pairwise_all_to_all(int ranks, const LinkCost& link);
/// Thakur et al. 2005: ceil(log2 n) steps of the whole S; for short messages.
Line recursive_doubling_all_reduce(int ranks, const LinkCost& link);
/// Rabenseifner 2004: the ring's bytes in 2 ceil(log2 n) steps.
Line halving_doubling_all_reduce(int ranks, const LinkCost& link);
/// Sanders, Speck & Traeff 2009, pipelined in chunks: 2 ceil(log2 n) (alpha + q beta) + 2 S beta.
Line double_tree_all_reduce(int ranks, const LinkCost& link, Bytes chunk = KiB(512));
Line binomial_broadcast(int ranks, const LinkCost& link);
/// Rank 0 receives n-1 messages in turn and sends n-1 in turn.
Line parameter_server_all_reduce(int ranks, const LinkCost& link);

using AllReduceForm = Line (*)(int ranks, const LinkCost&);
/// The two halves of any all-reduce. Together they take as long as the all-reduce; the first one
/// has all its additions. The halves of a ring are ring_reduce_scatter and ring_all_gather.
Line reduce_scatter_half(AllReduceForm form, int ranks, const LinkCost& link);
Line all_gather_half(AllReduceForm form, int ranks, const LinkCost& link);

/// Reduce-scatter inside the nodes, all-reduce of 1/g between them, all-gather inside. There are g
/// ranks a node, which share the network link. At most g ranks use only the link inside. `form` is
/// the all-reduce between the nodes.
Line hierarchical_all_reduce(int ranks, int ranks_per_node, const LinkCost& inside,
                             const LinkCost& between, AllReduceForm form = ring_all_reduce);
/// Its part between the nodes.
Line all_reduce_between_nodes(int nodes, int ranks_per_node, const LinkCost& between,
                              AllReduceForm form);

/// A half of that: `half` is reduce_scatter_half or all_gather_half.
using HalfOfForm = Line (*)(AllReduceForm form, int ranks, const LinkCost& link);
Line half_between_nodes(HalfOfForm half, AllReduceForm form, int nodes, int ranks_per_node,
                        const LinkCost& between);

/// The same two trees with the whole message as their chunk: 2 ceil(log2 n) (alpha + S beta), for
/// messages shorter than a chunk.
Line short_double_tree_all_reduce(int ranks, const LinkCost& link);

/// The all-reduce algorithms by name, for `linerate list cost-models` and CostOptions::all_reduce.
const Registry<AllReduceForm>& all_reduce_forms();

}  // namespace linerate::cost
