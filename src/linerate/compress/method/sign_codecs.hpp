// The codecs that send a bit an element, over either back end, for signsgd, efsignsgd, onebit and
// onebit-adam. The back end packs bits and finds levels.
#pragma once

#include <vector>

#include "linerate/compress/kernel/signs.hpp"
#include "linerate/compress/method/bucket_call.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/method/sign_format.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {

template <class Ops>
class SignSgdCodec final : public Ops::Codec {
 public:
  SignSgdCodec(const typename Ops::Making& making, double momentum)
      : Ops::Codec(making),
        beta_(momentum),
        momentum_(Ops::kept_zeros(making, momentum > 0 ? making.shape.elements : 0)) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    LINERATE_CHECK(!tensors.keeps_residual(), "signsgd keeps no residual");
    typename Ops::Values sent = Ops::gradients(tensors);
    if (beta_ > 0) sent = Ops::average(kept_of(tensors, &SignSgdCodec::momentum_), sent, beta_);
    Ops::send_signs(tensors, sent);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    this->note_damage(Ops::vote(tensors, "signsgd"));
  }
  std::vector<StateField> state() override {
    if (!(beta_ > 0)) return {};
    return {Ops::field("momentum", Passing::mean, momentum_)};
  }

 private:
  double beta_;
  typename Ops::KeptValues momentum_;  // empty: signs of gradients are sent
};

/// For a tensor that travels dense: the optimizer gets the moving average of its means.
template <class Ops>
class DenseAverageCodec final : public Ops::Codec {
 public:
  DenseAverageCodec(const typename Ops::Making& making, double beta)
      : Ops::Codec(making),
        beta_(beta),
        momentum_(Ops::kept_zeros(making, making.shape.elements)) {}

  void encode_all(int, const typename Ops::Sending&) override {
    throw InternalError("a tensor that travels dense is not encoded");
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::set_means(tensors, Ops::average(kept_of(tensors, &DenseAverageCodec::momentum_),
                                         Ops::means(tensors), beta_));
  }
  std::vector<StateField> state() override {
    return {Ops::field("momentum", Passing::same, momentum_)};
  }

 private:
  double beta_;
  typename Ops::KeptValues momentum_;
};

template <class Ops>
class ScaledSignCodec final : public Ops::Codec {
 public:
  ScaledSignCodec(const typename Ops::Making& making, const SignFormat& format)
      : Ops::Codec(making), format_(format) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send_scaled_signs(tensors, Ops::gradients(tensors), format_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    this->note_damage(Ops::average_scaled_signs(tensors, format_));
  }

 private:
  SignFormat format_;
};

template <class Ops>
class OneBitAdamCodec final : public Ops::Codec {
 public:
  OneBitAdamCodec(const typename Ops::Making& making, const OneBitAdamSettings& settings)
      : Ops::Codec(making),
        settings_(settings),
        format_(onebit_adam_format()),
        momentum_(Ops::kept_zeros(making, making.shape.elements)) {}

  /// In the dense phase the residual that another method may have left is sent as well.
  void encode_all(int, const typename Ops::Sending& tensors) override {
    is_dense_ = settings_.freeze_step > 0 && tensors.phase_of_step() == 0;
    if (is_dense_) return Ops::send_values(tensors);
    const auto own = Ops::averaged(kept(tensors), kept_of(tensors, &OneBitAdamCodec::room_),
                                   Ops::gradients(tensors), settings_.beta);
    Ops::send_scaled_signs(tensors, own, format_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    if (is_dense_) {
      this->note_damage(Ops::read_finite_means(tensors, format_.method));
      Ops::average(kept(tensors), Ops::means(tensors), settings_.beta);
    } else {
      this->note_damage(Ops::average_scaled_signs(tensors, format_));
      Ops::keep(kept(tensors), Ops::means(tensors));
    }
  }
  /// The momentum is kept as decoded, so it is alike on all ranks.
  std::vector<StateField> state() override {
    return {Ops::field("momentum", Passing::same, momentum_)};
  }

 private:
  auto kept(const auto& tensors) { return kept_of(tensors, &OneBitAdamCodec::momentum_); }

  OneBitAdamSettings settings_;
  SignFormat format_;
  bool is_dense_ = false;  // in the step at hand
  typename Ops::KeptValues momentum_;
  typename Ops::Room room_;  // of what it sends
};

}  // namespace linerate::compress
