// The back end of codecs that works in memory of the host, with kernels written in Highway. Each
// codec is written once, as a template over a back end. It is instantiated with this one and with
// that of tensors on a device (docs/compression.md, "Codecs once").
//
// The functions take all tensors of a bucket in one call, because a device would else start a
// kernel for each tensor. On the host they are loops over the tensors.
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
  using Room = std::vector<float>;                     // what a codec works in
  using Flag = bool;                                   // an answer about values
  struct Damage {};                                    // of what arrived: it is thrown
  using Values = std::vector<std::span<const float>>;  // by tensor
  using KeptValues = Kept<std::vector<float>>;         // of one tensor, from step to step
  using KeptNumber = Kept<float>;                      // the same, one number

  /// The arguments that a codec is made with.
  struct Making {
    Shape shape;
  };
  /// Tensors of a bucket on their way into payloads.
  struct Sending {
    struct Item {
      const Input& input;
      std::span<std::byte> payload;
      std::size_t sent = 0;  // bytes of it
    };
    std::span<Item> items;
    std::vector<Codec*> codecs;

    int ranks() const { return items.front().input.ranks; }
    std::optional<float> loss_scale() const { return items.front().input.loss_scale; }
    int phase_of_step() const { return items.front().input.phase; }
    bool keeps_residual() const { return !items.front().input.residual.empty(); }
  };
  /// Payloads of a bucket's tensors on their way into means.
  struct Arriving {
    struct Item {
      const Arrived& arrived;
      std::span<float> mean;
    };
    std::span<const Item> items;
    std::vector<Codec*> codecs;
  };

  /// A codec that codes many tensors in a call. A call of compress::Codec's functions is one with a
  /// single tensor.
  class Codec : public compress::Codec {
   public:
    explicit Codec(const Making&) {}

    virtual void encode_all(int round, const Sending& tensors) = 0;
    virtual void decode_all(int round, const Arriving& tensors) = 0;
    virtual Flag is_beyond() const { return false; }

    std::size_t encode(int round, const Input& input, std::span<std::byte> payload) final {
      Sending::Item one{input, payload};
      encode_all(round, {{&one, 1}, {this}});
      return one.sent;
    }
    void decode(int round, const Arrived& arrived, std::span<float> mean) final {
      const Arriving::Item one{arrived, mean};
      decode_all(round, {{&one, 1}, {this}});
    }
    bool overflowed() const final { return is_beyond(); }

   protected:
    void note_damage(Damage) {}
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
  using Rooms = std::vector<Picking*>;  // by tensor
  using Chosen = Rooms;
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

/// Both factors of each matrix of a bucket, in a step.
class HostOps::LowRank {
 public:
#include "linerate/compress/low_rank_ops-inl.hpp"

 private:
  struct OfTensor {
    FactorSize size;
    BySide<std::vector<float>> factor;
    std::uint64_t stream = 0;
    std::vector<std::size_t> vanished = {};
  };
  void send(OfTensor& factors, const Input& input, const FactorPass& pass);

  std::vector<OfTensor> tensors_;
};

}  // namespace linerate::compress
