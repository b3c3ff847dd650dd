// The compressors that linerate has. Each chooses a codec for a tensor as data (CodecChoice), and
// every back end makes that codec of the choice (make_codec.hpp). So a method's file names neither
// the host nor a device.
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
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::compress {

template <class Ops>
class HalfCodec;
template <class Ops>
class SignSgdCodec;
template <class Ops>
class DenseAverageCodec;
template <class Ops>
class ScaledSignCodec;
template <class Ops>
class OneBitAdamCodec;
template <class Ops>
class GridCodec;
template <class Ops>
class PowerCodec;
template <class Ops>
class PowerSgdCodec;
template <class Ops>
class AcpSgdCodec;
template <class Ops>
class TopKCodec;
template <class Ops>
class MsTopKCodec;
template <class Ops>
class SidcoCodec;
template <class Ops>
class ThresholdCodec;
template <class Ops>
class TwoBitCodec;
template <class Ops>
class DgcCodec;
template <class Ops>
class DgcDenseCodec;
template <class Ops>
class RandomKCodec;

/// A template of a codec, and the settings that it is made with besides the tensor's shape.
template <template <class Ops> class Of, class... Settings>
struct CodecWith {
  std::tuple<Settings...> settings;
};
using CodecChoice =
    std::variant<CodecWith<HalfCodec, DType>, CodecWith<SignSgdCodec, double>,
                 CodecWith<DenseAverageCodec, double>, CodecWith<ScaledSignCodec, SignFormat>,
                 CodecWith<OneBitAdamCodec, OneBitAdamSettings>, CodecWith<GridCodec, GridFormat>,
                 CodecWith<PowerCodec, PowerFormat>, CodecWith<PowerSgdCodec, std::int64_t>,
                 CodecWith<AcpSgdCodec, std::int64_t, int>, CodecWith<TopKCodec, double>,
                 CodecWith<MsTopKCodec, MsTopKSettings>, CodecWith<SidcoCodec, SidcoSettings>,
                 CodecWith<ThresholdCodec, ThresholdSettings>, CodecWith<TwoBitCodec, float>,
                 CodecWith<DgcCodec, DgcSettings>, CodecWith<DgcDenseCodec, DgcSettings>,
                 CodecWith<RandomKCodec, RandomKSettings>>;

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
