// Signs on the host, for signsgd, efsignsgd, onebit and onebit-adam. One pass over a tensor packs
// the bits and sums what the levels need. One more pass subtracts the sent levels from the
// residual, because the levels are known only after the sums.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::size_t kBlockWords = kDecodeBlock / 32;
using BlockWords = std::array<std::uint32_t, kBlockWords>;

/// Counts for each element of a block how many ranks called it negative. The counters lie in bit
/// planes: bit p of the count of element j of word w is bit j of planes[p][w]. So one word of logic
/// adds to 32 counters at once, like a ripple-carry adder.
///
/// Example with three ranks, so two planes, and one element that ranks 0 and 1 call negative. Rank
/// 0's bit goes to plane 0. Rank 1's bit finds plane 0 set: plane 0 becomes 0, and the carry sets
/// plane 1. Rank 2 adds nothing. The planes read 10, which is 2. Half of three ranks is 1, so the
/// majority is negative.
class Tally {
 public:
  explicit Tally(std::size_t ranks) : planes_(to_index(std::bit_width(ranks))), half_(ranks / 2) {}

  void clear() {
    for (BlockWords& plane : planes_) plane.fill(0);
  }
  void add(const std::byte* words, std::size_t count) {
    BlockWords carry;
    std::memcpy(carry.data(), words, 4 * count);
    for (BlockWords& plane : planes_)
      for (std::size_t w = 0; w < count; ++w) {
        const std::uint32_t both = plane[w] & carry[w];
        plane[w] ^= carry[w];
        carry[w] = both;
      }
  }
  /// The elements that more than half of the ranks called negative, as bits. The counts are
  /// compared with half from the highest bit down, as numbers are compared. `equal` has the
  /// elements whose higher bits are all as half's. Such an element is more if its bit is 1 where
  /// half's is 0. With an even number of ranks a tie is not more, so it stays positive.
  void majority(std::size_t count, BlockWords& more) const {
    BlockWords equal;
    equal.fill(~0u);
    more.fill(0);
    for (std::size_t p = planes_.size(); p-- > 0;) {
      const std::uint32_t of_half = half_ >> p & 1 ? ~0u : 0u;
      for (std::size_t w = 0; w < count; ++w) {
        more[w] |= equal[w] & planes_[p][w] & ~of_half;
        equal[w] &= ~(planes_[p][w] ^ of_half);
      }
    }
  }

 private:
  std::vector<BlockWords> planes_;
  std::size_t half_;
};

/// 0 for a class without elements.
float mean_of(double sum, std::int64_t count) {
  return count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f;
}

SignLevels levels_of(LevelRule rule, const SignSums& sums, std::size_t n) {
  const auto count = static_cast<std::int64_t>(n);
  if (rule == LevelRule::mean_of_class)
    return {mean_of(sums.first, count - sums.negatives), mean_of(sums.second, sums.negatives)};
  const float level = rule == LevelRule::mean_magnitude
                          ? mean_of(sums.first, count)
                          : static_cast<float>(std::sqrt(sums.first / static_cast<double>(n)));
  return {level, -level};
}

/// The places of levels and words in a tensor's payload: the levels of all blocks, then the words
/// of all elements.
struct SignPlaces {
  SignPlaces(const SignFormat& format, std::size_t elements)
      : rule(format.rule),
        n(elements),
        block(format.block > 0 ? to_index(format.block) : n),
        bytes(to_index(bytes_of(format, static_cast<std::int64_t>(n)))),
        words_at(bytes - sign_bytes(n)) {}

  std::size_t level_at(std::size_t element) const {
    return element / block * 4 * to_index(levels_per_block(rule));
  }
  void write(std::size_t first, SignLevels levels, std::span<std::byte> payload) const {
    write_at(payload, level_at(first), levels.positive);
    if (rule == LevelRule::mean_of_class) write_at(payload, level_at(first) + 4, levels.negative);
  }
  SignLevels read(std::size_t element, std::span<const std::byte> payload) const {
    const auto positive = read_at<float>(payload, level_at(element));
    if (rule != LevelRule::mean_of_class) return {positive, -positive};
    return {positive, read_at<float>(payload, level_at(element) + 4)};
  }
  void check(std::span<const std::byte> payload, std::size_t p, const std::string& method) const {
    for (std::size_t first = 0; first < n; first += block) {
      const SignLevels levels = read(first, payload);
      const bool ordered = levels.positive >= 0 && levels.negative <= 0;
      if (!ordered || !std::isfinite(levels.positive) || !std::isfinite(levels.negative))
        refuse_payload(method, p, "a level that no block has");
    }
    if (!has_clean_tail(payload.data() + words_at, n))
      refuse_payload(method, p, "bits after the last element");
  }

  LevelRule rule;
  std::size_t n, block, bytes, words_at;
};

}  // namespace

HostOps::Values HostOps::gradients(const Sending& tensor) { return tensor.gradient; }
HostOps::Values HostOps::means(const Arriving& tensor) { return tensor.mean; }

HostOps::Values HostOps::average(KeptValues& kept, const Values& x, double beta) {
  return averaged(kept, kept.next(), x, beta);
}

HostOps::Values HostOps::averaged(KeptValues& kept, Room& room, const Values& x, double beta) {
  const auto keep = static_cast<float>(beta), take = static_cast<float>(1 - beta);
  const std::vector<float>& m = kept.now();
  room.resize(x.size());
  std::transform(m.begin(), m.end(), x.begin(), room.begin(),
                 [&](float was, float is) { return keep * was + take * is; });
  return room;
}

void HostOps::keep(KeptValues& kept, const Values& values) {
  std::copy(values.begin(), values.end(), kept.next().begin());
}

void HostOps::send(const Sending& tensor, const DenseFormat&) {
  const std::span<float> residual = tensor.residual;
  for (std::size_t i = 0; i < tensor.elements(); ++i) {
    const float kept = residual.empty() ? 0 : residual[i];
    write_at(tensor.payload, 4 * i, tensor.gradient[i] + kept);
  }
  std::fill(residual.begin(), residual.end(), 0.0f);
  tensor.sent = 4 * tensor.elements();
}

void HostOps::receive(const Arriving& tensor, const DenseFormat&) {
  const auto& payloads = tensor.payloads;
  const auto check = payloads.size() == 1 ? check_sum : check_gathered;
  check(tensor, tensor.mean.size_bytes(), "dense");
  compress::average(tensor, tensor.mean,
                    [&](std::size_t p, std::size_t first, std::span<float> out) {
                      for (std::size_t i = 0; i < out.size(); ++i)
                        out[i] += read_at<float>(payloads[p], 4 * (first + i));
                    });
}

void HostOps::read_finite_means(const Arriving& tensor, std::string_view method) {
  read_mean(tensor, tensor.mean, method);
  if (!all_finite(tensor.mean))
    throw InputError(std::string(method) + ": the sum of gradients is not finite");
}

void HostOps::send_signs(const Sending& tensor, const Values& values) {
  pack_signs(values, {}, LevelRule::none, tensor.payload.data());
  tensor.sent = sign_bytes(values.size());
}

void HostOps::vote(const Arriving& tensor, std::string_view method) {
  const std::span<float> mean = tensor.mean;
  const auto ranks = to_index(tensor.ranks);
  check_gathered(tensor, sign_bytes(mean.size()), method);
  for (std::size_t p = 0; p < ranks; ++p)
    if (!has_clean_tail(tensor.payloads[p].data(), mean.size()))
      refuse_payload(method, p, "bits after the last element");
  Tally tally(ranks);
  BlockWords votes;
  for (std::size_t first = 0; first < mean.size(); first += kDecodeBlock) {
    const auto out = mean.subspan(first, std::min(kDecodeBlock, mean.size() - first));
    const std::size_t words = sign_bytes(out.size()) / 4;
    tally.clear();
    for (const auto& payload : tensor.payloads) tally.add(payload.data() + first / 8, words);
    tally.majority(words, votes);
    unpack_signs(reinterpret_cast<const std::byte*>(votes.data()), {1, -1}, Unpack::set, out);
  }
}

void HostOps::send_scaled_signs(const Sending& tensor, const Values& x, const SignFormat& format) {
  const SignPlaces places(format, x.size());
  for (std::size_t first = 0; first < places.n; first += places.block) {
    const std::size_t count = std::min(places.block, places.n - first);
    std::byte* words = tensor.payload.data() + places.words_at + first / 8;
    const auto rest = part_if_any(tensor.residual, first, count);
    const SignSums sums = pack_signs(x.subspan(first, count), rest, format.rule, words);
    const SignLevels levels = levels_of(format.rule, sums, count);
    places.write(first, levels, tensor.payload);
    if (!rest.empty()) unpack_signs(words, levels, Unpack::subtract, rest);
  }
  tensor.sent = places.bytes;
}

void HostOps::receive(const Arriving& tensor, const SignFormat& format) {
  const SignPlaces places(format, tensor.mean.size());
  const auto& payloads = tensor.payloads;
  check_gathered(tensor, places.bytes, format.method);
  for (std::size_t p = 0; p < payloads.size(); ++p) places.check(payloads[p], p, format.method);
  const auto add = [&](std::size_t p, std::size_t first, std::span<float> out) {
    while (!out.empty()) {  // the part of a block that lies in here
      const std::size_t count = std::min(out.size(), places.block - first % places.block);
      unpack_signs(payloads[p].data() + places.words_at + first / 8,
                   places.read(first, payloads[p]), Unpack::add, out.first(count));
      first += count;
      out = out.subspan(count);
    }
  };
  compress::average(tensor, tensor.mean, add);
}

}  // namespace linerate::compress
