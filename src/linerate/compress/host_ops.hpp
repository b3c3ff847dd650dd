// The back end of codecs that works in memory of the host, with kernels written in Highway. Each
// codec is written once, as a template over a back end. It is instantiated with this one and with
// that of tensors on a device (docs/compression.md, "Codecs once").
//
// A call of this one has a single tensor. A call of the other has all tensors of a bucket, because
// a device would else start a kernel for each tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/factors.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"

namespace linerate::compress {

class TwoPhase;
struct ChunkCall;

struct HostOps {
  class Codec;
  template <class T>
  using OfAll = T&;                             // what the codec of a call's tensor has
  using Room = std::vector<float>;              // what a codec works in
  using Flag = bool;                            // an answer about values
  struct Damage {};                             // of what arrived: it is thrown
  using Values = std::span<const float>;        // of a call's tensor
  using KeptValues = Kept<std::vector<float>>;  // of one tensor, from step to step
  using KeptNumber = Kept<float>;               // the same, one number

  /// The arguments that a codec is made with.
  struct Making {
    Shape shape;
  };
  /// A tensor on its way into a payload.
  struct Sending : Input {
    std::span<std::byte> payload;
    std::size_t& sent;  // bytes of it, written
    Codec* codec;

    std::size_t elements() const { return gradient.size(); }
    bool keeps_residual() const { return !residual.empty(); }
  };
  /// The payloads of a tensor on their way into its mean.
  struct Arriving : Arrived {
    std::span<float> mean;
    Codec* codec;
  };

  class Codec : public compress::Codec {
   public:
    explicit Codec(const Making&) {}

    virtual void encode_all(int round, const Sending& tensors) = 0;
    virtual void decode_all(int round, const Arriving& tensors) = 0;
    virtual Flag is_beyond() const { return false; }

    std::size_t encode(int round, const Input& input, std::span<std::byte> payload) final {
      std::size_t sent = 0;
      encode_all(round, {input, payload, sent, this});
      return sent;
    }
    void decode(int round, const Arrived& arrived, std::span<float> mean) final {
      decode_all(round, {arrived, mean, this});
    }
    bool overflowed() const final { return is_beyond(); }
  };

  static KeptValues kept_zeros(const Making&, std::int64_t elements) {
    return KeptValues(std::vector<float>(static_cast<std::size_t>(elements)));
  }
  static KeptNumber kept_zero(const Making&) { return KeptNumber(0); }
  static float number_of(const KeptNumber& kept) { return kept.now(); }
  static StateField field(std::string name, Passing passing, auto& kept) {
    return {std::move(name), passing, kept};
  }

  /// The elements that are picked from a tensor.
  struct Picking {
    Selection sent;
    bool is_all = false;        // the tensor, whatever is in `sent`
    std::vector<float> sample;  // to choose by
  };
  using Chosen = Picking&;
  using Drawn = std::vector<std::uint32_t>;

  class LowRank;

  // For the two-phase exchange (coded_tensor.hpp). Codecs may be any that code memory of the
  // host, a program's own among them.
  using Bytes = std::span<std::byte>;
  struct Arrays {  // by tensor
    std::vector<std::span<float>> values, residuals;
  };
  template <class T>
  static std::span<T> part(std::span<T> all, std::int64_t first, std::int64_t count) {
    return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }

#include "linerate/compress/ops-inl.hpp"
};

/// Both factors of a matrix, in a step.
class HostOps::LowRank {
 public:
#include "linerate/compress/low_rank_ops-inl.hpp"

 private:
  /// Vector j of a factor.
  std::span<float> vector_of(Side side, std::size_t j);
  void multiply(const Input& input, const FactorPass& pass);

  FactorSize size_;
  BySide<std::vector<float>> factor_;
  std::uint64_t stream_ = 0;
  std::vector<std::size_t> vanished_;
};

}  // namespace linerate::compress
