// The textbook costs. Each is a line alpha + beta S, so hierarchical forms are sums of lines. An
// example: a ring of 4 ranks over 10 Gbit/s (1.25 GB/s) with 20 us a message step, for S = 100 MB.
// There are 2 * 3 = 6 message steps, which take 120 us. Each rank sends 2 * 3/4 * 100 MB = 150 MB,
// which takes 120 ms. If adding a byte takes gamma, a rank adds 3/4 of the array over all its
// steps.
#include "linerate/cost/closed_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "linerate/core/error.hpp"
#include "linerate/cost/estimate.hpp"

namespace linerate::cost {
namespace {

double steps_of_tree(int ranks) {
  return ranks <= 1 ? 0 : std::bit_width(static_cast<unsigned>(ranks - 1));  // ceil(log2 n)
}
// The share of an array that other ranks hold, (n - 1) / n.
double share(int ranks) { return ranks <= 1 ? 0 : static_cast<double>(ranks - 1) / ranks; }
double others(int ranks) { return ranks <= 1 ? 0 : ranks - 1; }

// The closed model of Agarwal et al. 2021, with buckets of any sizes. All times are seconds and all
// sizes bytes. An example: backward takes 100 ms alone and gamma is 1.07, so backward takes 107 ms
// under overlap. Three buckets take 20 ms each on the network and the last one 8 ms. The first
// three hide under backward, as 60 < 107, and the step takes 107 + 8 = 115 ms. On a network that is
// three times slower they take 180 and 24 ms, and the step takes 180 + 24 = 204 ms.

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

Line recursive_doubling_all_reduce(int ranks, const LinkCost& link) {
  const double steps = steps_of_tree(ranks);
  return {steps * link.alpha_s, steps * (link.beta_s_per_byte + link.gamma_s_per_byte)};
}

// Distances halve, so each half takes ceil(log2 n) steps. Messages shrink with them: 1/2, 1/4, 1/8
// of the array. Together they are the ring's (n - 1) / n.
Line halving_doubling_all_reduce(int ranks, const LinkCost& link) {
  return {2 * steps_of_tree(ranks) * link.alpha_s,
          share(ranks) * (2 * link.beta_s_per_byte + link.gamma_s_per_byte)};
}

// Two trees carry half of the array each. Inner nodes of one tree are leaves of the other, so every
// link is used in both directions. Chunks follow one another, so depth costs one chunk a level, and
// the array costs its bytes once up and once down.
Line double_tree_all_reduce(int ranks, const LinkCost& link) {
  if (ranks <= 1) return {};
  constexpr double kChunk = 512 << 10;
  const double fill = link.alpha_s + kChunk * link.beta_s_per_byte;
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

// The all-gather is half of the form without additions, and the reduce-scatter is the rest. So both
// together are the whole, whatever the form.
Line all_gather_half(AllReduceForm form, int ranks, const LinkCost& link) {
  const Line both = form(ranks, {link.alpha_s, link.beta_s_per_byte, 0});
  return {both.alpha_s / 2, both.beta_s_per_byte / 2};
}

Line reduce_scatter_half(AllReduceForm form, int ranks, const LinkCost& link) {
  const Line both = form(ranks, link), gather = all_gather_half(form, ranks, link);
  return {both.alpha_s - gather.alpha_s, both.beta_s_per_byte - gather.beta_s_per_byte};
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
       {"double-tree", double_tree_all_reduce, "Two binary trees, pipelined in chunks of 512 KiB.",
        "Sanders, Speck & Traeff 2009"},
       {"parameter-server", parameter_server_all_reduce,
        "Rank 0 receives, sums and returns every buffer in turn.", "Li et al. 2014"}});
  return forms;
}

// What adding takes on top of a closed form, as a table.

AddTable::AddTable(std::span<const doc::AddCost> table) {
  if (table.empty()) return;
  for (const doc::AddCost& row : table)
    if (!(row.bytes >= 0 && row.seconds >= 0) || std::isinf(row.bytes) || std::isinf(row.seconds))
      throw UsageError(fmt::format("add cost: expected bytes and seconds from 0, found {} B: {} s",
                                   row.bytes, row.seconds));
  pieces_.reserve(table.size() + 1);
  pieces_.push_back({table.front().bytes, table.front().seconds, 0});
  for (std::size_t i = 1; i < table.size(); ++i) {
    const doc::AddCost& a = table[i - 1];
    const doc::AddCost& b = table[i];
    if (!(b.bytes > a.bytes))
      throw UsageError(fmt::format("add cost: expected ascending sizes, found {} B after {} B",
                                   b.bytes, a.bytes));
    const double slope = (b.seconds - a.seconds) / (b.bytes - a.bytes);
    pieces_.push_back({b.bytes, a.seconds - slope * a.bytes, slope});
  }
  pieces_.push_back({std::numeric_limits<double>::infinity(), table.back().seconds, 0});
}

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
