// threshold: every element of magnitude tau or more. Strom 2015 (Interspeech): its own wire form
// has two bits an element; the value form sends what is left whole.
//   value:   v[n] f32 -> u32 count, f32 values, u32 indices; where that is not smaller than the
//            dense tensor, u32 kDense and v itself
//   two-bit: v[n] f32 -> pad4(ceil(n / 4)) bytes of codes; a large value leaves in several steps
// tau is an option, or else the density's: the exact k-th magnitude, k = density n, taken anew only
// if the last one selects fewer than k / 2 or more than 2 k, as it costs more than selecting by it
// (DCT, Gupta et al. 2020, arXiv 2010.08899); in between tau follows what it selects.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>

#include "linerate/compress/kernel/largest.hpp"
#include "linerate/compress/kernel/magnitude.hpp"
#include "linerate/compress/kernel/select.hpp"
#include "linerate/compress/kernel/two_bit.hpp"
#include "linerate/compress/method/density.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kThreshold = "threshold";
std::size_t most_entries(std::size_t elements) {
  return to_index(threshold_most_entries(static_cast<std::int64_t>(elements)));
}

class ValueCodec : public Codec {
 public:
  ValueCodec(const Shape& shape, std::optional<float> tau, double density)
      : fixed_(tau), target_(to_index(entries_of(density, shape.elements))) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    const std::size_t most = most_entries(input.gradient.size());
    sent_.clear();
    const bool fits = fixed_ ? add_and_select(input, magnitude_bits(*fixed_), most, sent_)
                             : select_by_density(input, most);
    if (!fits) return write_dense(input, payload);
    clear_sent(sent_, input.residual);
    return write_counted_entries(sent_, payload);
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    bool dense = false;
    for (const auto& payload : arrived.payloads) dense |= is_dense(payload);
    if (dense)
      decode_mixed(arrived, mean);
    else
      decode_counted_entries(arrived, most_entries(mean.size()), mean, kThreshold);
  }

  std::vector<StateField> state() override { return {{"tau", Passing::own, tau_}}; }
  bool is_sane() const override { return tau_.now() >= 0 && std::isfinite(tau_.now()); }

 private:
  /// Forms v and selects by the last tau, or by the exact one if that is off. False: too many.
  bool select_by_density(const Input& input, std::size_t most) {
    const float tau = tau_.now();
    const std::size_t limit = std::min(most, 2 * target_);
    if (tau > 0 && add_and_select(input, magnitude_bits(tau), limit, sent_) &&
        2 * sent_.size() >= target_) {
      const double share = static_cast<double>(sent_.size()) / static_cast<double>(target_);
      tau_.next() = static_cast<float>(tau * std::pow(share, kTauFollows));
      return true;
    }
    if (tau == 0) add_residual(input);
    select_exactly(corrected(input));
    return sent_.size() <= most;
  }

  /// By the magnitude of the target's last element; nothing if all of v is zero.
  void select_exactly(std::span<const float> v) {
    sent_.clear();
    select_largest(v, target_, sent_);
    std::uint32_t least = kMagnitude;
    for (const float value : sent_.values()) least = std::min(least, magnitude_bits(value));
    sent_.clear();
    if (least == 0 || least == kMagnitude) return;
    tau_.next() = std::bit_cast<float>(least);
    select(v, least, 0, sent_);
  }

  static bool is_dense(std::span<const std::byte> payload) {
    return payload.size() >= kCountBytes && read_at<std::uint32_t>(payload, 0) == kAllValues;
  }

  std::size_t write_dense(const Input& input, std::span<std::byte> payload) {
    const std::span<const float> v = corrected(input);
    write_at(payload, 0, kAllValues);
    for (std::size_t i = 0; i < v.size(); ++i)
      write_at(payload, kCountBytes + 4 * i, v[i] + 0.0f);  // -0.0 travels as +0.0
    std::fill(input.residual.begin(), input.residual.end(), 0.0f);
    return kCountBytes + v.size_bytes();
  }

  /// Rare: dense payloads are given indices, so that all ranks are averaged in one way.
  void decode_mixed(const Arrived& arrived, std::span<float> mean) const {
    check_one_a_rank(arrived, kThreshold);
    std::vector<std::uint32_t> all(mean.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
    std::vector<Entries> ranks;
    for (std::size_t r = 0; r < arrived.payloads.size(); ++r) {
      const auto& payload = arrived.payloads[r];
      if (!is_dense(payload)) {
        ranks.push_back(read_counted_entries(payload, most_entries(mean.size()), kThreshold, r));
      } else if (payload.size() == kCountBytes + mean.size_bytes()) {
        ranks.push_back({payload.subspan(kCountBytes), std::as_bytes(std::span(all)), mean.size()});
      } else {
        refuse_payload(kThreshold, r,
                       fmt::format("expected {} bytes, found {}", kCountBytes + mean.size_bytes(),
                                   payload.size()));
      }
    }
    average_entries(ranks, arrived, mean, kThreshold);
  }

  std::optional<float> fixed_;
  std::size_t target_;  // elements to select
  Kept<float> tau_;     // 0: not taken yet
  Selection sent_;
};

class TwoBitCodec : public Codec {
 public:
  TwoBitCodec(std::int64_t bytes, float tau) : bytes_(to_index(bytes)), tau_(tau) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    encode_two_bit(input, tau_, payload.data());
    return bytes_;
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_gathered(arrived, bytes_, kThreshold);
    for (std::size_t r = 0; r < arrived.payloads.size(); ++r)
      if (!is_two_bit(arrived.payloads[r], mean.size()))
        refuse_payload(kThreshold, r, "expected codes 0, 1 and 2 and zeros after them");
    average(arrived, mean, [&](std::size_t r, std::size_t first, std::span<float> out) {
      add_two_bit(arrived.payloads[r].subspan(first / 4), tau_, out);
    });
  }

 private:
  std::size_t bytes_;
  float tau_;
};

class Threshold : public Compressor {
 public:
  explicit Threshold(const ThresholdSettings& settings)
      : form_(settings.form), tau_(settings.tau), density_(settings.density) {}

  std::vector<Round> rounds(const Shape& shape) const override {
    if (form_ == ThresholdForm::two_bit)
      return one_round_if_smaller(shape, {Combine::gather, DType::u8, two_bit_bytes(shape)});
    // The bound is the dense step's; a tensor too small for one entry never gains.
    if (kCountBytes + kEntryBytes >= 4 * shape.elements) return {};
    const std::int64_t bytes = kCountBytes + 4 * shape.elements;
    // A given tau says nothing about how much is above it.
    const std::int64_t as_a_rule =
        tau_ ? 0 : kCountBytes + kEntryBytes * entries_of(density_, shape.elements);
    return {{Combine::gather, DType::u8, bytes, true, std::min(as_a_rule, bytes)}};
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    if (form_ == ThresholdForm::two_bit)
      return std::make_unique<TwoBitCodec>(two_bit_bytes(shape), *tau_);
    return std::make_unique<ValueCodec>(shape, tau_, density_);
  }
  Residual residual() const override { return Residual::needed; }

 private:
  static std::int64_t two_bit_bytes(const Shape& shape) {
    return pad4(ceil_div(shape.elements, 4));
  }

  ThresholdForm form_;
  std::optional<float> tau_;
  double density_;
};

std::optional<float> read_tau(doc::OptionReader& options) {
  const auto tau = options.number("tau");
  if (!tau) return std::nullopt;
  const auto narrow = static_cast<float>(*tau);
  if (!(narrow > 0 && std::isfinite(narrow))) options.refuse("tau", "a magnitude above 0");
  return narrow;
}

}  // namespace

ThresholdSettings read_threshold(doc::OptionReader& options) {
  const auto tau = read_tau(options);
  const auto form = static_cast<ThresholdForm>(options.choice("form", {"value", "two-bit"}));
  if (form == ThresholdForm::two_bit && !tau)
    options.fail("form", "two-bit: expected tau=, which all ranks decode with, found none");
  return {form, tau, read_density(options)};
}

CompressorLine compressor_threshold() {
  return {"threshold",
          [](doc::OptionReader& options) -> std::unique_ptr<const Compressor> {
            return std::make_unique<Threshold>(read_threshold(options));
          },
          "Every magnitude above a threshold: threshold(density=0.01, tau=, form=value|two-bit).",
          "Strom 2015 (Interspeech)"};
}

}  // namespace linerate::compress
