#include "linerate/cost/closed_form.hpp"

#include <algorithm>
#include <bit>

#include "linerate/cost/ring_or_tree.hpp"

namespace linerate::cost {
namespace {

double steps_of_tree(int ranks) {
  return ranks <= 1 ? 0 : std::bit_width(static_cast<unsigned>(ranks - 1));  // ceil(log2 n)
}
double share(int ranks) { return ranks <= 1 ? 0 : static_cast<double>(ranks - 1) / ranks; }
double others(int ranks) { return ranks <= 1 ? 0 : ranks - 1; }

LinkCost shared_by(int ranks, const LinkCost& link) {
  return {link.alpha_s, link.beta_s_per_byte * ranks, link.gamma_s_per_byte};
}

Line default_double_tree(int ranks, const LinkCost& link) {
  return double_tree_all_reduce(ranks, link);
}

}  // namespace

Line ring_all_reduce(int ranks, const LinkCost& link) {
  return {2 * others(ranks) * link.alpha_s,
          share(ranks) * (2 * link.beta_s_per_byte + link.gamma_s_per_byte)};
}

Line ring_reduce_scatter(int ranks, const LinkCost& link) {
  return {others(ranks) * link.alpha_s,
          share(ranks) * (link.beta_s_per_byte + link.gamma_s_per_byte)};
}

Line ring_all_gather(int ranks, const LinkCost& link) {
  return {others(ranks) * link.alpha_s, share(ranks) * link.beta_s_per_byte};
}

Line pairwise_all_to_all(int ranks, const LinkCost& link) { return ring_all_gather(ranks, link); }

Line recursive_doubling_all_reduce(int ranks, const LinkCost& link) {
  const double steps = steps_of_tree(ranks);
  return {steps * link.alpha_s, steps * (link.beta_s_per_byte + link.gamma_s_per_byte)};
}

Line halving_doubling_all_reduce(int ranks, const LinkCost& link) {
  return {2 * steps_of_tree(ranks) * link.alpha_s,
          share(ranks) * (2 * link.beta_s_per_byte + link.gamma_s_per_byte)};
}

Line double_tree_all_reduce(int ranks, const LinkCost& link, Bytes chunk) {
  if (ranks <= 1) return {};
  const double fill = link.alpha_s + static_cast<double>(chunk.value) * link.beta_s_per_byte;
  return {2 * steps_of_tree(ranks) * fill, 2 * link.beta_s_per_byte + link.gamma_s_per_byte};
}

Line short_double_tree_all_reduce(int ranks, const LinkCost& link) {
  const double steps = 2 * steps_of_tree(ranks);
  return {steps * link.alpha_s, steps * (link.beta_s_per_byte + link.gamma_s_per_byte / 2)};
}

Line binomial_broadcast(int ranks, const LinkCost& link) {
  const double steps = steps_of_tree(ranks);
  return {steps * link.alpha_s, steps * link.beta_s_per_byte};
}

Line parameter_server_all_reduce(int ranks, const LinkCost& link) {
  return {2 * others(ranks) * link.alpha_s,
          others(ranks) * (2 * link.beta_s_per_byte + link.gamma_s_per_byte)};
}

Line all_gather_half(AllReduceForm form, int ranks, const LinkCost& link) {
  const Line both = form(ranks, {link.alpha_s, link.beta_s_per_byte, 0});
  return {both.alpha_s / 2, both.beta_s_per_byte / 2};
}

Line reduce_scatter_half(AllReduceForm form, int ranks, const LinkCost& link) {
  const Line both = form(ranks, link), gather = all_gather_half(form, ranks, link);
  return {both.alpha_s - gather.alpha_s, both.beta_s_per_byte - gather.beta_s_per_byte};
}

Line all_reduce_between_nodes(int nodes, int g, const LinkCost& between, AllReduceForm form) {
  const Line whole = form(nodes, shared_by(g, between));
  return {whole.alpha_s, whole.beta_s_per_byte / g};
}

Line half_between_nodes(HalfOfForm half, AllReduceForm form, int nodes, int g,
                        const LinkCost& between) {
  const Line part = half(form, nodes, shared_by(g, between));
  return {part.alpha_s, part.beta_s_per_byte / g};
}

Line hierarchical_all_reduce(int ranks, int ranks_per_node, const LinkCost& inside,
                             const LinkCost& between, AllReduceForm form) {
  const int g = std::min(ranks, ranks_per_node);
  const Line scatter = ring_reduce_scatter(g, inside);
  const Line reduce = all_reduce_between_nodes((ranks + g - 1) / g, g, between, form);
  const Line gather = ring_all_gather(g, inside);
  return {scatter.alpha_s + reduce.alpha_s + gather.alpha_s,
          scatter.beta_s_per_byte + reduce.beta_s_per_byte + gather.beta_s_per_byte};
}

const Registry<AllReduceForm>& all_reduce_forms() {
  static const Registry<AllReduceForm> forms(
      "all-reduce algorithm",
      {{std::string(kRingOrTree), ring_all_reduce,
        "The shortest of ring and double tree, by size and ranks; the default of whatif and "
        "advise.",
        "NCCL, src/graph/tuning.cc"},
       {"ring", ring_all_reduce, "2(n-1) steps of S/n round a ring.", "Patarasuk & Yuan 2009"},
       {"recursive-doubling", recursive_doubling_all_reduce,
        "ceil(log2 n) exchanges of the whole buffer; for short messages.", "Thakur et al. 2005"},
       {"halving-doubling", halving_doubling_all_reduce,
        "The ring's bytes in 2 ceil(log2 n) steps.", "Rabenseifner 2004"},
       {"double-tree", default_double_tree, "Two binary trees, pipelined in chunks of 512 KiB.",
        "Sanders, Speck & Traeff 2009"},
       {"parameter-server", parameter_server_all_reduce,
        "Rank 0 receives, sums and returns every buffer in turn.", "Li et al. 2014"}});
  return forms;
}

}  // namespace linerate::cost
