// How sidco gets from the moments of magnitudes to its threshold. The moments are taken by the
// caller, on the host or on a device.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/factors.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {

/// Fewer magnitudes than this say nothing about a distribution.
inline constexpr std::uint64_t kLeastForFit = 64;
/// The share that the first of several stages is fitted for (the paper's delta_1).
inline constexpr double kFirstRatio = 0.25;
/// From so many elements on, thresholds are fitted to a sample. It has one block of every stretch,
/// whole cache lines, at a hashed place. Regular places would meet the periods that rows and
/// channels give a tensor.
inline constexpr std::size_t kSampledFrom = 1 << 20, kStretch = 512, kSampledRun = 64;
/// If more than this part of a tensor is above a sample's threshold, the sample was not like the
/// tensor.
inline constexpr std::int64_t kMostPicked = 8;  // 1 / kMostPicked

/// Most entries that are sent for k wanted.
constexpr std::int64_t sidco_capacity(std::int64_t k) { return (13 * k + 9) / 10; }
inline int sidco_most_stages(double density) {
  return std::max(1, static_cast<int>(std::ceil(std::log(density) / std::log(0.5))));
}

/// The bits of the least magnitude above a threshold. The threshold is rounded to f32 first, so
/// that the last bit of a machine's logarithm hardly ever shows.
inline std::uint32_t sidco_bits_of(double threshold) {
  const auto nearest = static_cast<float>(threshold);
  return std::isfinite(nearest) ? magnitude_bits(nearest) + 1 : kNoMagnitude;
}

/// What a search found in a tensor, or in a sample of it.
struct SidcoFit {
  std::int64_t positive = 0;           // magnitudes above 0
  std::uint32_t least = kNoMagnitude;  // to send; kNoMagnitude: nothing fits
  bool by_sample = false;
};

/// Finds the least magnitude to send, stage by stage. One fit over all magnitudes is bad far out in
/// the tail. So the first stage looks for the threshold of a quarter, and each later stage fits
/// only the tail of the one before. Several tensors can be searched at once, because the caller
/// takes the moments.
///
/// Example: a density of .01 in three stages. The first threshold is exceeded by .25 of the
/// magnitudes. The other two stages share the rest evenly: .2 of the tail each, and .25 * .2 * .2 =
/// .01.
class SidcoSearch {
 public:
  /// `positive` of n magnitudes are above 0 and have the moments x. A share `density` of the n is
  /// wanted.
  SidcoSearch(TailDistribution fit, const FitMoments& x, std::uint64_t positive, std::size_t n,
              double density, int wanted_stages)
      : fit_(fit), positive_(static_cast<std::int64_t>(positive)) {
    // Magnitudes that differ by less than f32 shows fit no distribution.
    const bool all_equal = x.variance <= 1e-14 * x.mean * x.mean;
    if (positive < kLeastForFit || all_equal) return;
    const double d =
        std::min(1.0, density * static_cast<double>(n) / static_cast<double>(positive));
    const int stages = d >= kFirstRatio ? 1 : wanted_stages;
    ratio_ = std::pow(d / kFirstRatio, 1.0 / std::max(1, stages - 1));
    set(fitted_threshold(fit, x, stages == 1 ? d : kFirstRatio), stages - 1);
  }

  /// Bits of the least magnitude to send, or to fit the tail of; kNoMagnitude if none fits.
  std::uint32_t least() const { return least_; }
  bool is_over() const { return stages_left_ <= 0; }
  SidcoFit found() const { return {positive_, least_}; }
  /// Takes in the moments of the magnitudes that reach least().
  void take(const TailFit& tail) {
    if (tail.count < 2) {
      stages_left_ = 0;
    } else if (tail.smallest == tail.largest) {
      set(std::numeric_limits<double>::infinity(), 0);
    } else {
      const double m = std::bit_cast<float>(tail.smallest);
      set(m + fitted_excess(fit_, {tail.mean_excess, tail.variance, 0}, ratio_), stages_left_ - 1);
    }
  }

 private:
  void set(double threshold, int stages_left) {
    least_ = sidco_bits_of(threshold);
    stages_left_ = least_ == kNoMagnitude ? 0 : stages_left;
  }

  TailDistribution fit_;
  std::int64_t positive_;
  double ratio_ = 1;
  std::uint32_t least_ = kNoMagnitude;
  int stages_left_ = 0;
};

/// The stages that a tensor is searched in.
inline int sidco_stages(const SidcoSettings& settings, const Kept<StageControl>& control) {
  return settings.stages > 0 ? settings.stages : control.now().stages;
}

/// How many entries are sent, and whether they are the tensor's largest in place of all that reach
/// the fitted magnitude.
struct SidcoSent {
  std::int64_t count = 0;
  bool are_largest = false;
};
/// `reached` of n elements reach it, and about k should. If nothing fits, the k largest are sent.
/// The largest are also sent if too many reach it, or so many that the sample was none. The k
/// largest are sent if less than half of k reach it, as happens when gradients become much smaller
/// than the residual. A caller who set the stages asked for that fit, so its few entries are then
/// sent as they are. The share that reaches it adjusts the stages of later steps.
inline SidcoSent sidco_sent(const SidcoSettings& settings, std::int64_t n, const SidcoFit& fit,
                            std::int64_t reached, Kept<StageControl>& kept) {
  const std::int64_t k = entries_of(settings.density, n), most = std::min(sidco_capacity(k), n);
  const std::int64_t wanted = fit.by_sample ? k : std::min(k, fit.positive);
  if (fit.least == kNoMagnitude) return {wanted, wanted > 0};
  const bool is_no_sample = fit.by_sample && reached > n / kMostPicked;
  const std::int64_t selected = is_no_sample ? most : reached;
  StageControl control = kept.now();
  control.observe(static_cast<double>(selected) / static_cast<double>(k),
                  sidco_most_stages(settings.density));
  kept.next() = control;
  const bool are_few = settings.stages == 0 && 2 * selected < wanted;
  const std::int64_t count = are_few ? wanted : std::min(selected, most);
  return {count, is_no_sample || count != reached};
}

// The codecs that send some elements of a tensor, over either back end. A codec decides which
// elements it sends. The back end finds and writes them.

/// The base of these codecs: all but the choice of entries. Entries that are sent leave the
/// residual.
template <class Ops>
class EntryCodec : public Ops::Codec {
 public:
  EntryCodec(const typename Ops::Making& making, const EntryFormat& format)
      : Ops::Codec(making), format_(format) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send_entries(tensors, chosen(tensors), format_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::average_entries(tensors, format_);
  }

 protected:
  virtual typename Ops::Chosen chosen(const typename Ops::Sending& tensors) = 0;

  decltype(auto) rooms(const auto& tensors) { return kept_of(tensors, &EntryCodec::room_); }
  EntryFormat& format() { return format_; }

 private:
  EntryFormat format_;
  typename Ops::Picking room_;
};

/// topk, or mstopk if there are halvings.
template <class Ops>
class TopKCodec final : public EntryCodec<Ops> {
 public:
  TopKCodec(const typename Ops::Making& making, double density, int halvings)
      : EntryCodec<Ops>(making, {halvings > 0 ? "mstopk" : "topk", density, entries_of}),
        halvings_(halvings) {}

 private:
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    if (halvings_ == 0) return Ops::choose_largest(tensors, this->rooms(tensors), this->format());
    return Ops::choose_by_halving(tensors, this->rooms(tensors), this->format(), halvings_);
  }

  int halvings_;
};

template <class Ops>
class SidcoCodec final : public EntryCodec<Ops> {
 public:
  SidcoCodec(const typename Ops::Making& making, const SidcoSettings& settings)
      : EntryCodec<Ops>(making, {"sidco", settings.density,
                                 [](double density, std::int64_t elements) {
                                   return sidco_capacity(entries_of(density, elements));
                                 },
                                 true}),
        settings_(settings),
        most_stages_(sidco_most_stages(settings.density)),
        control_(StageControl{.stages = std::min(2, most_stages_)}) {}

  std::vector<StateField> state() override { return {{"stages", Passing::own, control_}}; }
  bool is_sane() const override { return control_.now().is_sane(most_stages_); }

 private:
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    return Ops::choose_by_fit(tensors, this->rooms(tensors),
                              kept_of(tensors, &SidcoCodec::control_), settings_);
  }

  SidcoSettings settings_;
  int most_stages_;
  Kept<StageControl> control_;
};

template <class Ops>
class ThresholdCodec final : public EntryCodec<Ops> {
 public:
  ThresholdCodec(const typename Ops::Making& making, std::optional<float> tau, double density)
      : EntryCodec<Ops>(making, {"threshold", density, threshold_most_entries, true, true}),
        fixed_(tau),
        tau_(Ops::kept_zero(making)) {}

  std::vector<StateField> state() override { return {Ops::field("tau", Passing::own, tau_)}; }
  bool is_sane() const override {
    const float tau = Ops::number_of(tau_);
    return tau >= 0 && std::isfinite(tau);
  }

 private:
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    return Ops::choose_from(tensors, this->rooms(tensors), this->format(), fixed_,
                            kept_of(tensors, &ThresholdCodec::tau_));
  }

  std::optional<float> fixed_;
  typename Ops::KeptNumber tau_;  // 0: not taken yet
};

template <class Ops>
class DgcCodec final : public EntryCodec<Ops> {
 public:
  /// `densities`: of phases.
  DgcCodec(const typename Ops::Making& making, const DgcSettings& settings,
           const std::vector<double>& densities)
      : EntryCodec<Ops>(making, {"dgc", settings.density, dgc_most_entries, true}),
        settings_(settings),
        densities_(densities),
        momentum_(Ops::kept_zeros(making, making.shape.elements)),
        accumulated_(Ops::kept_zeros(making, making.shape.elements)) {}

  std::vector<StateField> state() override {
    return {Ops::field("momentum", Passing::mean, momentum_),
            Ops::field("accumulated", Passing::owed, accumulated_)};
  }

 private:
  /// Entries that are sent leave both the accumulation and the momentum.
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    const int phase = tensors.phase;
    this->format().density = phase < 0 ? settings_.density : densities_.at(to_index(phase));
    auto&& u = kept_of(tensors, &DgcCodec::momentum_);
    auto&& r = kept_of(tensors, &DgcCodec::accumulated_);
    Ops::accumulate(tensors, u, r, settings_);
    typename Ops::Chosen sent =
        Ops::choose_by_sample(tensors, this->rooms(tensors), this->format(), r);
    Ops::clear(sent, u);
    Ops::clear(sent, r);
    return sent;
  }

  DgcSettings settings_;
  std::vector<double> densities_;
  typename Ops::KeptValues momentum_, accumulated_;  // u and r, in gradient units
};

/// Places follow from the step's key alone. So ranks send values without their places, and the
/// values add up.
template <class Ops>
class RandomKCodec final : public Ops::Codec {
 public:
  RandomKCodec(const typename Ops::Making& making, double density, Places places)
      : Ops::Codec(making), density_(density), places_(places) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send_drawn(tensors, kept_of(tensors, &RandomKCodec::drawn_), density_, places_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::average_drawn(tensors, kept_of(tensors, &RandomKCodec::drawn_), density_);
  }

 private:
  double density_;
  Places places_;
  typename Ops::Drawn drawn_;  // of the step: encode's, used again by decode
};

}  // namespace linerate::compress
