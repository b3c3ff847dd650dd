// The compressors that linerate has. Each chooses a codec for a tensor as data (CodecChoice), and
// every back end makes that codec of the choice (made_of()). So a method's file names neither the
// host nor a device.
//
// Example: topk chooses CodecWith<TopKCodec, double>{{0.01}} for a tensor. The host makes
// TopKCodec<HostOps> of it, with 0.01 as the density. torch_codecs makes the same template over its
// tensor operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
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
using CodecChoice =
    std::variant<GridFormat, PowerFormat, SignFormat, TwoBitFormat, CodecWith<HalfCodec, DType>,
                 CodecWith<SignSgdCodec, double>, CodecWith<DenseMomentumCodec, DenseMomentum>,
                 CodecWith<OneBitAdamCodec, OneBitAdamSettings>,
                 CodecWith<PowerSgdCodec, std::int64_t>, CodecWith<AcpSgdCodec, std::int64_t, int>,
                 CodecWith<TopKCodec, double>, CodecWith<MsTopKCodec, MsTopKSettings>,
                 CodecWith<SidcoCodec, SidcoSettings>, CodecWith<ThresholdCodec, ThresholdSettings>,
                 CodecWith<DgcCodec, DgcSettings>, CodecWith<RandomKCodec, RandomKSettings>>;

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

class BuiltIn : public Compressor {
 public:
  /// As codec() and of_dense(), over any back end.
  virtual CodecChoice choice(const Shape& shape) const = 0;
  virtual std::optional<CodecChoice> dense_choice() const { return std::nullopt; }

  std::unique_ptr<Codec> codec(const Shape& shape) const final;
  std::unique_ptr<Codec> of_dense(const Shape& shape) const final;
};

/// A method that sends one payload a step, whose size follows from the number of elements.
struct OneRound {
  std::function<Round(std::int64_t elements)> round;
  CodecChoice choice;
  Residual residual = Residual::needed;
  bool is_unbiased = false;
  Momentum momentum = Momentum::optimizers;
  std::optional<CodecChoice> of_dense = std::nullopt;
  std::int64_t remembered_bytes = 0;  // of an element
  std::int64_t dense_below = 4096;
};
/// Its compressor. A tensor whose payload would not be smaller travels dense.
std::unique_ptr<const Compressor> one_round(OneRound method);

/// Their names. Those that a program registers are not among them (registry.hpp).
std::vector<std::string> built_in_compressors();

}  // namespace linerate::compress
