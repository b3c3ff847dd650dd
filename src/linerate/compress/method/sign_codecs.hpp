// The codecs that send a bit an element, over either back end, for signsgd, efsignsgd, onebit and
// onebit-adam. The back end packs bits and finds levels.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/compress/factors.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
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
    Ops::vote(tensors, "signsgd");
  }
  std::vector<StateField> state() override {
    if (!(beta_ > 0)) return {};
    return {Ops::field("momentum", Passing::mean, momentum_)};
  }

 private:
  double beta_;
  typename Ops::KeptValues momentum_;  // empty: signs of gradients are sent
};

/// Gives the optimizer the momentum of a tensor that travels dense. It is that of the mean, not of
/// a rank's own gradient, so it is alike on all ranks.
template <class Ops>
class DenseMomentumCodec final : public Ops::Codec {
 public:
  DenseMomentumCodec(const typename Ops::Making& making, const DenseMomentum& rule)
      : Ops::Codec(making),
        rule_(rule),
        momentum_(Ops::kept_zeros(making, making.shape.elements)) {}

  void encode_all(int, const typename Ops::Sending&) override {
    throw InternalError("a tensor that travels dense is not encoded");
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::add_momentum(tensors, kept_of(tensors, &DenseMomentumCodec::momentum_), rule_);
  }
  std::vector<StateField> state() override {
    return {Ops::field("momentum", Passing::same, momentum_)};
  }

 private:
  DenseMomentum rule_;
  typename Ops::KeptValues momentum_;
};

template <class Ops>
class OneBitAdamCodec final : public Ops::Codec {
 public:
  OneBitAdamCodec(const typename Ops::Making& making, double beta, bool begins_dense)
      : Ops::Codec(making),
        beta_(beta),
        begins_dense_(begins_dense),
        format_(onebit_adam_format()),
        momentum_(Ops::kept_zeros(making, making.shape.elements)) {}

  /// In the dense phase the residual that another method may have left is sent as well.
  void encode_all(int, const typename Ops::Sending& tensors) override {
    is_dense_ = begins_dense_ && tensors.phase == 0;
    if (is_dense_) return Ops::send(tensors, DenseFormat());
    const auto own = Ops::averaged(kept(tensors), kept_of(tensors, &OneBitAdamCodec::room_),
                                   Ops::gradients(tensors), beta_);
    Ops::send_scaled_signs(tensors, own, format_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    if (is_dense_) {
      Ops::read_finite_means(tensors, format_.method);
      Ops::average(kept(tensors), Ops::means(tensors), beta_);
    } else {
      Ops::receive(tensors, format_);
      Ops::keep(kept(tensors), Ops::means(tensors));
    }
  }
  /// The momentum is kept as decoded, so it is alike on all ranks.
  std::vector<StateField> state() override {
    return {Ops::field("momentum", Passing::same, momentum_)};
  }

 private:
  decltype(auto) kept(const auto& tensors) { return kept_of(tensors, &OneBitAdamCodec::momentum_); }

  double beta_;
  bool begins_dense_;  // phase 0 does
  SignFormat format_;
  bool is_dense_ = false;  // in the step at hand
  typename Ops::KeptValues momentum_;
  typename Ops::Room room_;  // of what it sends
};

/// A codec of one pass each way that keeps nothing but the residual. Its formats are codes on
/// grids, powers of two, scaled signs, two bits an element, and values as they are.
template <class Ops, class Format>
class FormatCodec final : public Ops::Codec {
 public:
  FormatCodec(const typename Ops::Making& making, const Format& format)
      : Ops::Codec(making), format_(format) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send(tensors, format_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::receive(tensors, format_);
  }

 private:
  Format format_;
};

// The codecs that send a matrix as a product of two thin ones, over either back end. The back end
// multiplies factors and makes them orthonormal. The formulas are at the heads of powersgd.cpp and
// acpsgd.cpp.

/// Round 0 sends P of the last step's Q. Round 1 sends Q of the orthonormal P. The sum of P is not
/// divided by the ranks, because only its directions matter.
template <class Ops>
class PowerSgdCodec final : public Ops::Codec {
 public:
  PowerSgdCodec(const typename Ops::Making& making, std::int64_t rank)
      : Ops::Codec(making),
        size_(factor_size_of(rank, making.shape)),
        q_(Ops::kept_zeros(making, size_.rank * size_.columns)) {}

  void encode_all(int round, const typename Ops::Sending& tensors) override {
    if (round > 0) return factors_.send(tensors, {Side::right, false, true});
    factors_.begin(kept_of(tensors, &PowerSgdCodec::size_));
    factors_.take(Side::right, kept_of(tensors, &PowerSgdCodec::q_));
    factors_.make_unit(Side::right, tensors);
    factors_.send(tensors, {Side::left, true, false});
  }
  void decode_all(int round, const typename Ops::Arriving& tensors) override {
    if (round == 0) {
      factors_.receive(Side::left, tensors, "powersgd", Taken::sum);
      return factors_.orthonormalise(Side::left);
    }
    factors_.receive(Side::right, tensors, "powersgd", Taken::mean);
    factors_.write_products(tensors);
    factors_.redraw_vanished(Side::right);
    factors_.leave(Side::right, kept_of(tensors, &PowerSgdCodec::q_));
    for_each_kept(kept_of(tensors, &PowerSgdCodec::is_warm_), [](auto& kept) { kept.next() = 1; });
  }
  std::vector<StateField> state() override {
    return {Ops::field("q", Passing::same, q_), {"is_warm", Passing::same, is_warm_}};
  }
  bool is_sane() const override { return is_warm_.now() <= 1; }

 private:
  FactorSize size_;
  typename Ops::KeptValues q_;
  Kept<std::uint64_t> is_warm_;    // 1: Q's vectors are a step's
  typename Ops::LowRank factors_;  // of the step at hand
};

/// Each step sends one factor, of the other one made orthonormal. Both sent factors are kept for
/// the next step, as means over ranks.
template <class Ops>
class AcpSgdCodec final : public Ops::Codec {
 public:
  /// `left`: the phase that sends P; the next one sends Q.
  AcpSgdCodec(const typename Ops::Making& making, std::int64_t rank, int left)
      : Ops::Codec(making),
        size_(factor_size_of(rank, making.shape)),
        left_(left),
        p_(Ops::kept_zeros(making, size_.rank * size_.rows)),
        q_(Ops::kept_zeros(making, size_.rank * size_.columns)) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    const int phase = tensors.phase;
    const bool is_left = phase < 0 ? steps_.now() % 2 == 0 : phase == left_;
    sent_ = is_left ? Side::left : Side::right;
    factors_.begin(kept_of(tensors, &AcpSgdCodec::size_));
    factors_.take(other(sent_), kept(other(sent_), tensors));
    factors_.orthonormalise_fresh(other(sent_), tensors);
    factors_.send(tensors, {sent_, true, true});
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    factors_.receive(sent_, tensors, "acpsgd", Taken::mean);
    factors_.write_products(tensors);
    for (const Side side : {Side::left, Side::right}) factors_.leave(side, kept(side, tensors));
    for_each_kept(kept_of(tensors, &AcpSgdCodec::steps_),
                  [](auto& kept) { kept.next() = kept.now() + 1; });
  }
  std::vector<StateField> state() override {
    return {Ops::field("p", Passing::same, p_),
            Ops::field("q", Passing::same, q_),
            {"steps", Passing::same, steps_}};
  }

 private:
  decltype(auto) kept(Side side, const auto& tensors) {
    return kept_of(tensors, side == Side::left ? &AcpSgdCodec::p_ : &AcpSgdCodec::q_);
  }

  FactorSize size_;
  int left_;
  typename Ops::KeptValues p_, q_;
  Kept<std::uint64_t> steps_;  // decoded
  // For the step at hand.
  Side sent_ = Side::left;
  typename Ops::LowRank factors_;
};

}  // namespace linerate::compress
