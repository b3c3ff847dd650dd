// The codecs that send a matrix as a product of two thin ones, over either back end. The back end
// multiplies factors and makes them orthonormal. The formulas are at the heads of powersgd.cpp and
// acpsgd.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/compress/factors.hpp"
#include "linerate/compress/method/bucket_call.hpp"

namespace linerate::compress {

template <class Ops>
/// Round 0 sends P of the last step's Q. Round 1 sends Q of the orthonormal P. The sum of P is not
/// divided by the ranks, because only its directions matter.
class PowerSgdCodec final : public Ops::Codec {
 public:
  PowerSgdCodec(const typename Ops::Making& making, std::int64_t rank)
      : Ops::Codec(making),
        size_{rank, making.shape.rows, making.shape.columns()},
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
    for (Kept<std::uint64_t>* const is_warm : kept_of(tensors, &PowerSgdCodec::is_warm_))
      is_warm->next() = 1;
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

template <class Ops>
/// Each step sends one factor, of the other one made orthonormal. Both sent factors are kept for
/// the next step, as means over ranks.
class AcpSgdCodec final : public Ops::Codec {
 public:
  /// `left`: the phase that sends P; the next one sends Q.
  AcpSgdCodec(const typename Ops::Making& making, std::int64_t rank, int left)
      : Ops::Codec(making),
        size_{rank, making.shape.rows, making.shape.columns()},
        left_(left),
        p_(Ops::kept_zeros(making, size_.rank * size_.rows)),
        q_(Ops::kept_zeros(making, size_.rank * size_.columns)) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    const int phase = tensors.phase_of_step();
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
    for (Kept<std::uint64_t>* const steps : kept_of(tensors, &AcpSgdCodec::steps_))
      steps->next() = steps->now() + 1;
  }
  std::vector<StateField> state() override {
    return {Ops::field("p", Passing::same, p_),
            Ops::field("q", Passing::same, q_),
            {"steps", Passing::same, steps_}};
  }

 private:
  auto kept(Side side, const auto& tensors) {
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
