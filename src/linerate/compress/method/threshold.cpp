// threshold: every element of magnitude tau or more. Strom 2015 (Interspeech): the paper's own wire
// form has two bits an element. The form `value` sends each such element whole.
//   value:   v[n] f32 -> u32 count, f32 values, u32 indices; where that is not smaller than the
//            dense tensor, u32 kAllValues and v itself
//   two-bit: v[n] f32 -> pad4(ceil(n / 4)) bytes of codes; a large value leaves in several steps
// tau is an option. If it is absent, tau is that of the density: the exact k-th magnitude, k =
// density n. To find it costs more than to select by it (DCT, Gupta et al. 2020, arXiv 2010.08899).
// So it is taken anew only if the last one selects fewer than k / 2 or more than 2 k. In between
// tau follows the number that it selects.
//
// Example: k = 1,000. Step 1 has no tau and takes the exact one. In step 2 gradients have grown and
// 1,500 are selected, so tau grows by 4 %. In step 3 it selects 2,600, so the exact one is taken
// again.
#include <bit>
#include <cmath>
#include <optional>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// Selects all that reach the k-th largest magnitude of v, and keeps it as tau. Ties are selected
/// too, so there may be more than k. Nothing is selected if all of v is zero.
void select_exactly(std::span<const float> v, std::size_t k, Selection& sent,
                    HostOps::KeptNumber& tau) {
  sent.clear();
  select_largest(v, k, sent);
  std::uint32_t least = kMagnitude;
  for (const float value : sent.values()) least = std::min(least, magnitude_bits(value));
  sent.clear();
  if (least == 0 || least == kMagnitude) return;
  tau.next() = std::bit_cast<float>(least);
  select(v, least, 0, sent);
}

/// Forms v and selects by the last tau, if that gives k / 2 to 2 k entries. tau is then moved
/// towards k. Else tau is taken anew, from the exact k-th magnitude. False: too many to send as
/// entries.
bool select_by_density(const Input& input, std::size_t most, std::size_t k, Selection& sent,
                       HostOps::KeptNumber& kept) {
  const float tau = kept.now();
  if (tau > 0 && add_and_select(input, magnitude_bits(tau), std::min(most, 2 * k), sent) &&
      2 * sent.size() >= k) {
    const double share = static_cast<double>(sent.size()) / static_cast<double>(k);
    kept.next() = static_cast<float>(tau * std::pow(share, kTauFollows));
    return true;
  }
  if (tau == 0) add_residual(input);
  select_exactly(corrected(input), k, sent, kept);
  return sent.size() <= most;
}

std::optional<float> read_tau(doc::OptionReader& options) {
  const auto tau = options.number("tau");
  if (!tau) return std::nullopt;
  const auto narrow = static_cast<float>(*tau);
  if (!(narrow > 0 && std::isfinite(narrow))) options.refuse("tau", "a magnitude above 0");
  return narrow;
}

/// The bound of entries is that of a dense step. A tensor too small for one entry never gains. A
/// given tau says nothing about how much is above it.
std::vector<Round> threshold_rounds(bool has_tau, double density, std::int64_t n) {
  if (kCountBytes + kEntryBytes >= 4 * n) return {};
  const std::int64_t bytes = kCountBytes + 4 * n;
  const std::int64_t as_a_rule = has_tau ? 0 : kCountBytes + kEntryBytes * entries_of(density, n);
  return {{Combine::gather, DType::u8, bytes, true, std::min(as_a_rule, bytes)}};
}

std::unique_ptr<const Compressor> make_threshold(doc::OptionReader& options) {
  const std::optional<float> tau = read_tau(options);
  const bool is_two_bit = options.choice("form", {"value", "two-bit"}) == 1;
  if (is_two_bit && !tau)
    options.fail("form", "two-bit: expected tau=, which all ranks decode with, found none");
  const double density = read_density(options);
  if (is_two_bit)
    return built_in({.rounds = one_round([](std::int64_t n) { return gathered(two_bit_bytes(n)); }),
                     .choice = TwoBitFormat{*tau}});
  const auto rounds = [=](const Shape& shape, int) {
    return threshold_rounds(tau.has_value(), density, shape.elements);
  };
  return built_in(
      {.rounds = rounds,
       .choice = CodecWith<ThresholdCodec, std::optional<float>, double>{{tau, density}}});
}

}  // namespace

HostOps::Chosen HostOps::choose_from(const Sending& tensor, Picking& room,
                                     const EntryFormat& format, std::optional<float> tau,
                                     KeptNumber& kept_tau) {
  const auto n = static_cast<std::int64_t>(tensor.elements());
  const std::size_t most = to_index(format.most_of(n)), k = to_index(entries_of(format.density, n));
  room.sent.clear();
  room.is_all = !(tau ? add_and_select(tensor, magnitude_bits(*tau), most, room.sent)
                      : select_by_density(tensor, most, k, room.sent, kept_tau));
  return room;
}

void HostOps::send(const Sending& tensor, const TwoBitFormat& format) {
  encode_two_bit(tensor, format.tau, tensor.payload.data());
  tensor.sent = to_index(two_bit_bytes(static_cast<std::int64_t>(tensor.elements())));
}

void HostOps::receive(const Arriving& tensor, const TwoBitFormat& format) {
  const std::span<float> mean = tensor.mean;
  const auto& payloads = tensor.payloads;
  check_gathered(tensor, to_index(two_bit_bytes(std::ssize(mean))), "threshold");
  for (std::size_t r = 0; r < payloads.size(); ++r)
    if (!is_two_bit(payloads[r], mean.size()))
      refuse_payload("threshold", r, "expected codes 0, 1 and 2 and zeros after them");
  compress::average(tensor, mean, [&](std::size_t r, std::size_t first, std::span<float> out) {
    add_two_bit(payloads[r].subspan(first / 4), format.tau, out);
  });
}

CompressorLine compressor_threshold() {
  return {"threshold", make_threshold,
          "Every magnitude above a threshold: threshold(density=0.01, tau=, form=value|two-bit).",
          "Strom 2015 (Interspeech)"};
}

}  // namespace linerate::compress
