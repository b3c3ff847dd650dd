// The compressors that linerate has. Each chooses a codec for a tensor as data (CodecChoice), and
// every back end makes that codec of the choice (made_of()). So a method's file names neither the
// host nor a device.
//
// Example: topk chooses CodecWith<TopKCodec, double, int>{{0.01, 0}} for a tensor. The host makes
// TopKCodec<HostOps> of it, with 0.01 as the density. torch_codecs makes the same template over its
// tensor operations.
//
// This header has all that a method's file needs besides registry.hpp: options, formats, codecs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/method/entry_codecs.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/method/sign_codecs.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::compress {

/// A template of a codec, and the settings that it is made with besides the tensor's shape.
template <template <class Ops> class Of, class... Settings>
struct CodecWith {
  std::tuple<Settings...> settings;
};
/// A format alone stands for a FormatCodec.
using CodecChoice = std::variant<
    GridFormat, PowerFormat, SignFormat, TwoBitFormat, CodecWith<HalfCodec, DType>,
    CodecWith<SignSgdCodec, double>, CodecWith<DenseMomentumCodec, DenseMomentum>,
    CodecWith<OneBitAdamCodec, double, bool>, CodecWith<PowerSgdCodec, std::int64_t>,
    CodecWith<AcpSgdCodec, std::int64_t, int>, CodecWith<TopKCodec, double, int>,
    CodecWith<SidcoCodec, SidcoSettings>, CodecWith<ThresholdCodec, std::optional<float>, double>,
    CodecWith<DgcCodec, DgcSettings, std::vector<double>>, CodecWith<RandomKCodec, double, Places>>;

template <class Ops, template <class> class Of, class... Settings>
std::unique_ptr<typename Ops::Codec> make_codec(const typename Ops::Making& making,
                                                const CodecWith<Of, Settings...>& choice) {
  return std::apply([&](const auto&... each) { return std::make_unique<Of<Ops>>(making, each...); },
                    choice.settings);
}
/// The codec of a choice over a back end.
template <class Ops>
std::unique_ptr<typename Ops::Codec> made_of(const typename Ops::Making& making,
                                             const CodecChoice& choice) {
  const auto make = [&]<class One>(const One& one) -> std::unique_ptr<typename Ops::Codec> {
    if constexpr (requires { one.settings; })
      return make_codec<Ops>(making, one);
    else
      return std::make_unique<FormatCodec<Ops, One>>(making, one);
  };
  return std::visit(make, choice);
}

/// A method as data.
struct BuiltInMethod {
  /// As Compressor::rounds(); of `phase` -1: those of a steady step.
  std::function<std::vector<Round>(const Shape& shape, int phase)> rounds;
  CodecChoice choice;
  Residual residual = Residual::needed;
  bool is_unbiased = false;
  Phases phases = {};
  Momentum momentum = Momentum::optimizers;
  std::optional<CodecChoice> of_dense = std::nullopt;
  bool is_two_phase = false;
  std::function<BuiltInMethod()> of_means = nullptr;
  std::function<std::int64_t(const Shape& shape)> remembered_bytes = nullptr;
  std::function<double(const Shape& shape)> products = nullptr;
  std::int64_t dense_below = 4096;
};

/// Makes the codec of a choice over a back end.
using MakeCodec =
    std::function<std::unique_ptr<Codec>(const Shape& shape, const CodecChoice& choice)>;

class BuiltIn final : public Compressor {
 public:
  BuiltIn(BuiltInMethod method, MakeCodec make)
      : method_(std::move(method)), make_(std::move(make)) {}
  const BuiltInMethod& method() const { return method_; }

  Phases phases() const override { return method_.phases; }
  std::vector<Round> rounds(const Shape& shape) const override { return method_.rounds(shape, -1); }
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    return method_.rounds(shape, phase);
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return make_(shape, method_.choice);
  }
  Residual residual() const override { return method_.residual; }
  Momentum momentum() const override { return method_.momentum; }
  std::unique_ptr<Codec> of_dense(const Shape& shape) const override {
    return method_.of_dense ? make_(shape, *method_.of_dense) : nullptr;
  }
  bool is_two_phase() const override { return method_.is_two_phase; }
  std::unique_ptr<const Compressor> of_means() const override {
    return method_.of_means ? std::make_unique<BuiltIn>(method_.of_means(), make_) : nullptr;
  }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return method_.remembered_bytes ? method_.remembered_bytes(shape) : 0;
  }
  double products(const Shape& shape) const override {
    return method_.products ? method_.products(shape) : 0;
  }
  bool is_unbiased() const override { return method_.is_unbiased; }
  std::int64_t dense_below() const override { return method_.dense_below; }

 private:
  BuiltInMethod method_;
  MakeCodec make_;
};

/// Its codecs work on the host.
std::unique_ptr<const Compressor> built_in(BuiltInMethod method);
/// The density's share of the elements, the largest ones: exactly, or by so many halvings.
std::unique_ptr<const Compressor> largest_entries(double density, int halvings);
/// The rounds of a method that sends one payload a step, whose size follows from the number of
/// elements. A tensor whose payload would not be smaller travels dense.
std::function<std::vector<Round>(const Shape&, int)> one_round(
    std::function<Round(std::int64_t elements)> round);

/// As make_compressor() of registry.hpp, with other codecs. Null for a program's own compressor.
std::unique_ptr<const Compressor> make_built_in(const doc::Component& component,
                                                const MakeCodec& make);
/// Their names. Those that a program registers are not among them (registry.hpp).
std::vector<std::string> built_in_compressors();

}  // namespace linerate::compress
