// The codecs that send some elements of a tensor, over either back end. A codec decides which
// elements it sends. The back end finds and writes them.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/compress/method/bucket_call.hpp"
#include "linerate/compress/method/entry_format.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/method/sidco_fit.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/compress/stage_control.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {

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
    this->note_damage(Ops::average_entries(tensors, format_));
  }

 protected:
  virtual typename Ops::Chosen chosen(const typename Ops::Sending& tensors) = 0;

  auto rooms(const auto& tensors) { return kept_of(tensors, &EntryCodec::room_); }
  EntryFormat& format() { return format_; }

 private:
  EntryFormat format_;
  typename Ops::Picking room_;
};

template <class Ops>
class TopKCodec final : public EntryCodec<Ops> {
 public:
  TopKCodec(const typename Ops::Making& making, double density)
      : EntryCodec<Ops>(making, {"topk", density, entries_of}) {}

 private:
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    return Ops::choose_largest(tensors, this->rooms(tensors), this->format());
  }
};

template <class Ops>
class MsTopKCodec final : public EntryCodec<Ops> {
 public:
  MsTopKCodec(const typename Ops::Making& making, const MsTopKSettings& settings)
      : EntryCodec<Ops>(making, {"mstopk", settings.density, entries_of}),
        halvings_(settings.halvings) {}

 private:
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    return Ops::choose_by_halving(tensors, this->rooms(tensors), this->format(), halvings_);
  }

  int halvings_;
};

template <class Ops>
class SidcoCodec final : public EntryCodec<Ops> {
 public:
  SidcoCodec(const typename Ops::Making& making, const SidcoSettings& settings)
      : EntryCodec<Ops>(making, {"sidco", settings.density, most_entries, true}),
        settings_(settings),
        most_stages_(sidco_most_stages(settings.density)),
        control_(StageControl(most_stages_).state()) {}

  std::vector<StateField> state() override { return {{"stages", Passing::own, control_}}; }
  bool is_sane() const override { return StageControl(most_stages_).restore(control_.now()); }

 private:
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    return Ops::choose_by_fit(tensors, this->rooms(tensors),
                              kept_of(tensors, &SidcoCodec::control_), settings_);
  }

  static std::int64_t most_entries(double density, std::int64_t elements) {
    return sidco_capacity(entries_of(density, elements));
  }

  SidcoSettings settings_;
  int most_stages_;
  Kept<StageControl::State> control_;
};

template <class Ops>
class ThresholdCodec final : public EntryCodec<Ops> {
 public:
  ThresholdCodec(const typename Ops::Making& making, const ThresholdSettings& settings)
      : EntryCodec<Ops>(making, {"threshold", settings.density, most_entries, true, true}),
        fixed_(settings.tau),
        tau_(Ops::kept_zero(making)) {}

  std::vector<StateField> state() override { return {Ops::field("tau", Passing::own, tau_)}; }
  bool is_sane() const override {
    const float tau = Ops::number_of(tau_);
    return tau >= 0 && std::isfinite(tau);
  }

 private:
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    if (fixed_) return Ops::choose_from(tensors, this->rooms(tensors), this->format(), *fixed_);
    return Ops::choose_from_last(tensors, this->rooms(tensors), this->format(),
                                 kept_of(tensors, &ThresholdCodec::tau_));
  }

  static std::int64_t most_entries(double, std::int64_t elements) {
    return threshold_most_entries(elements);
  }

  std::optional<float> fixed_;
  typename Ops::KeptNumber tau_;  // 0: not taken yet
};

/// Strom's two bits an element.
template <class Ops>
class TwoBitCodec final : public Ops::Codec {
 public:
  TwoBitCodec(const typename Ops::Making& making, float tau) : Ops::Codec(making), tau_(tau) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send_two_bits(tensors, tau_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    this->note_damage(Ops::average_two_bits(tensors, tau_));
  }

 private:
  float tau_;
};

template <class Ops>
class DgcCodec final : public EntryCodec<Ops> {
 public:
  DgcCodec(const typename Ops::Making& making, const DgcSettings& settings)
      : EntryCodec<Ops>(making, {"dgc", settings.density, dgc_most_entries, true}),
        settings_(settings),
        densities_(dgc_densities(settings)),
        momentum_(Ops::kept_zeros(making, making.shape.elements)),
        accumulated_(Ops::kept_zeros(making, making.shape.elements)) {}

  std::vector<StateField> state() override {
    return {Ops::field("momentum", Passing::mean, momentum_),
            Ops::field("accumulated", Passing::owed, accumulated_)};
  }

 private:
  /// Entries that are sent leave both the accumulation and the momentum.
  typename Ops::Chosen chosen(const typename Ops::Sending& tensors) override {
    const int phase = tensors.phase_of_step();
    this->format().density = phase < 0 ? settings_.density : densities_.at(to_index(phase));
    const auto u = kept_of(tensors, &DgcCodec::momentum_);
    const auto r = kept_of(tensors, &DgcCodec::accumulated_);
    Ops::accumulate(tensors, u, r, settings_);
    auto sent = Ops::choose_by_sample(tensors, this->rooms(tensors), this->format(), r);
    Ops::clear(sent, u);
    Ops::clear(sent, r);
    return sent;
  }

  DgcSettings settings_;
  std::vector<double> densities_;                    // of phases
  typename Ops::KeptValues momentum_, accumulated_;  // u and r, in gradient units
};

/// The momentum of a tensor that travels dense. It is that of the mean, not of a rank's own
/// gradient, so it is alike on all ranks.
template <class Ops>
class DgcDenseCodec final : public Ops::Codec {
 public:
  DgcDenseCodec(const typename Ops::Making& making, const DgcSettings& settings)
      : Ops::Codec(making),
        settings_(settings),
        momentum_(Ops::kept_zeros(making, making.shape.elements)) {}

  void encode_all(int, const typename Ops::Sending&) override {
    throw InternalError("a tensor that travels dense is not encoded");
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::add_momentum(tensors, kept_of(tensors, &DgcDenseCodec::momentum_), settings_);
  }
  std::vector<StateField> state() override {
    return {Ops::field("momentum", Passing::same, momentum_)};
  }

 private:
  DgcSettings settings_;
  typename Ops::KeptValues momentum_;
};

/// Places follow from the step's key alone. So ranks send values without their places, and the
/// values add up.
template <class Ops>
class RandomKCodec final : public Ops::Codec {
 public:
  RandomKCodec(const typename Ops::Making& making, const RandomKSettings& settings)
      : Ops::Codec(making), settings_(settings) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send_drawn(tensors, kept_of(tensors, &RandomKCodec::drawn_), settings_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::average_drawn(tensors, kept_of(tensors, &RandomKCodec::drawn_), settings_);
  }

 private:
  RandomKSettings settings_;
  typename Ops::Drawn drawn_;  // of the step: encode's, used again by decode
};

}  // namespace linerate::compress
