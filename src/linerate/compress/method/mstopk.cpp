// mstopk: about the k largest magnitudes, by bisection for the threshold. Shi et al. 2021, "Towards
// scalable distributed training of deep learning on public cloud clusters" (MLSys, arXiv
// 2010.10458), with the defects of its published form left out.
// v[n] f32 -> payload of k f32 values, k u32 indices; k = max(1, floor(density n)).
#include <algorithm>
#include <utility>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// A threshold that was tried: the bits of the least magnitude that reaches it, and how many
/// magnitudes do.
struct Probe {
  std::size_t count;
  std::uint32_t least;
};

/// Counts magnitudes that reach a threshold. Once few reach the lower end of the bisection, these
/// are picked, and later counts look only at them. The counts are the same, because the bisection
/// never asks below that end again.
class Counter {
 public:
  Counter(std::span<const float> v, Selection& picked) : v_(v), picked_(picked) {}

  std::size_t elements() const { return v_.size(); }
  std::size_t count(std::uint32_t least) const {
    return count_at_least(is_picked_ ? picked_.values() : v_, least);
  }
  void never_asks_below(const Probe& probe) {
    if (!is_picked_ && probe.count <= v_.size() / 8) pick(probe.least);
  }
  /// All that reach a threshold, in order; the last call.
  void pick(std::uint32_t least) {
    if (is_picked_) return picked_.keep_at_least(least);
    picked_.clear();
    select(v_, least, 0, picked_);
    is_picked_ = true;
  }

 private:
  std::span<const float> v_;
  Selection& picked_;
  bool is_picked_ = false;
};

/// The two thresholds that the bisection ends with: `upper` has at most k magnitudes, `lower` at
/// least k.
struct Bracket {
  Probe upper, lower;
  void take(const Probe& probe, std::size_t k) {
    if (probe.count <= k && probe.count > upper.count) upper = probe;
    if (probe.count > k && probe.count < lower.count) lower = probe;
  }
};

/// Halves the interval from the mean to the largest magnitude, or from 0 to the mean if fewer than
/// k reach the mean.
///
/// Example: k = 10 of 1,000 elements, the mean is .8 and the largest 4. 400 reach the mean, so the
/// interval is .8 to 4. 12 reach 2.4, so the answer is above. 3 reach 3.2 and 7 reach 2.8, so it is
/// below. 10 reach 2.6, and the search ends. With fewer halvings it might end with 7 above 2.8 and
/// 12 above 2.4.
Bracket bisect(const Moments& moments, std::size_t k, int halvings, Counter& counter) {
  const std::size_t n = counter.elements();
  Bracket bracket{{0, kNoMagnitude}, {n, 0}};
  if (moments.count() == 0) return bracket;
  // The mean counts zeros too.
  const double mean =
      moments.mean() * static_cast<double>(moments.count()) / static_cast<double>(n);
  const Probe at_mean = {counter.count(bits_at_least(mean)), bits_at_least(mean)};
  bracket.take(at_mean, k);
  const bool is_above = at_mean.count >= k;
  const double base = is_above ? mean : 0;
  const double top = is_above ? moments.largest() : mean;
  double low = 0, high = 1;
  for (int i = 0; i < halvings && bracket.upper.count != k; ++i) {
    const double ratio = (low + high) / 2;
    const std::uint32_t least = bits_at_least(base + ratio * (top - base));
    const Probe probe = {counter.count(least), least};
    (probe.count <= k ? high : low) = ratio;
    bracket.take(probe, k);
    if (probe.count > k) counter.never_asks_below(probe);
  }
  return bracket;
}

/// Keeps all that reach the upper threshold, and fills up to k with some that reach only the lower
/// one. These are a run from a random place, so that no part of the tensor is preferred. Example: 7
/// reach the upper and 12 the lower threshold, and k = 10. So 3 of the 5 between are kept, in a row
/// from the first, second or third of them.
void keep_run(const Bracket& found, std::size_t k, double random, Selection& sent) {
  const std::size_t candidates = sent.size() - found.upper.count;
  const std::size_t wanted = k - found.upper.count;
  const auto start =
      static_cast<std::size_t>(random * static_cast<double>(candidates - wanted + 1));
  Selection kept;
  std::size_t candidate = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const float value = sent.values()[i];
    const bool is_upper = magnitude_bits(value) >= found.upper.least;
    if (is_upper || (candidate >= start && candidate < start + wanted))
      kept.append(value, sent.indices()[i]);
    candidate += !is_upper;
  }
  std::swap(sent, kept);
}

std::unique_ptr<const Compressor> make_mstopk(doc::OptionReader& options) {
  const double density = read_density(options);
  const std::int64_t halvings = options.integer("rounds", 20);
  if (halvings < 1 || halvings > 1000) options.refuse("rounds", "a number from 1 to 1000");
  return largest_entries(density, static_cast<int>(halvings));
}

}  // namespace

HostOps::Chosen HostOps::choose_by_halving(const Sending& tensor, Picking& room,
                                           const EntryFormat& format, int halvings) {
  Moments moments;
  add_and_take(tensor, [&](std::span<const float> part) { moments.add(part); });
  const std::span<const float> v = corrected(tensor);
  const std::size_t k = to_index(format.most_of(static_cast<std::int64_t>(v.size())));
  Counter counter(v, room.sent);
  const Bracket found = bisect(moments, k, halvings, counter);
  counter.pick(found.upper.count == k ? found.upper.least : found.lower.least);
  if (room.sent.size() > k) keep_run(found, k, random_unit(tensor.keys.own, 0), room.sent);
  return room;
}

CompressorLine compressor_mstopk() {
  return {"mstopk", make_mstopk,
          "About the largest magnitudes, by bisection: mstopk(density=0.01, rounds=20).",
          "Shi et al. 2021 (arXiv 2010.10458)"};
}

}  // namespace linerate::compress
