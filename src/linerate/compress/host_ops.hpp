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
    explicit Codec(const Making& making) : shape_(making.shape) {}

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
    const Shape& shape() const { return shape_; }

   private:
    Shape shape_;
  };

  /// Payloads: gradients * share in 16 bits.
  static void narrow(const Sending& tensors, DType half, float share);
  /// Payloads: v in 16 bits, cut off at +-limit. The rest of v stays in the residual. Returns
  /// whether a v is beyond the limit.
  static Flag narrow_and_keep(const Sending& tensors, DType half, const HalfScale& scale);
  /// Means: the payloads, which are sums of 2 bytes an element, times `by`.
  static void widen(const Arriving& tensors, DType half, float by);

  static KeptValues kept_zeros(const Making&, std::int64_t elements) {
    return KeptValues(std::vector<float>(static_cast<std::size_t>(elements)));
  }
  static KeptNumber kept_zero(const Making&) { return KeptNumber(0); }
  static float number_of(const KeptNumber& kept) { return kept.now(); }
  static StateField field(std::string name, Passing passing, auto& kept) {
    return {std::move(name), passing, kept};
  }
  static Values gradients(const Sending& tensors);
  static Values means(const Arriving& tensors);
  /// kept.next = beta kept.now + (1 - beta) x; returns it.
  static Values average(const std::vector<KeptValues*>& kept, const Values& x, double beta);
  /// As average(), but the answer goes to `rooms`, and kept.next stays as it is.
  static Values averaged(const std::vector<KeptValues*>& kept, const std::vector<Room*>& rooms,
                         const Values& x, double beta);
  /// kept.next = values.
  static void keep(const std::vector<KeptValues*>& kept, const Values& values);

  /// Payloads: v as f32. The residual becomes zero.
  static void send_values(const Sending& tensors);
  /// Means of such payloads, or of their sum.
  static Damage average_values(const Arriving& tensors, std::string_view method);
  /// Means of sums of f32; damaged if one is not finite.
  static Damage read_finite_means(const Arriving& tensors, std::string_view method);
  /// Payloads: a bit for each of `values`, in words.
  static void send_signs(const Sending& tensors, const Values& values);
  /// Means: 1, or -1 where more than half of the ranks said negative.
  static Damage vote(const Arriving& tensors, std::string_view method);
  /// Payloads: levels and signs of x plus the residual. The residual keeps the part that is not
  /// sent.
  static void send_scaled_signs(const Sending& tensors, const Values& x, const SignFormat& format);
  static void send(const Sending& tensors, const SignFormat& format) {
    send_scaled_signs(tensors, gradients(tensors), format);
  }
  /// Means of what send() writes with this format.
  static Damage receive(const Arriving& tensors, const SignFormat& format);

  /// Payloads: codes of v on the grid of its bucket.
  static void send(const Sending& tensors, const GridFormat& format);
  static Damage receive(const Arriving& tensors, const GridFormat& format);
  /// Payloads: powers of two next to v, at random.
  static void send(const Sending& tensors, PowerFormat format);
  static Damage receive(const Arriving& tensors, PowerFormat format);

  /// The elements that are picked from a tensor.
  struct Picking {
    Selection sent;
    bool is_all = false;        // the tensor, whatever is in `sent`
    std::vector<float> sample;  // to choose by
  };
  using Chosen = std::vector<Picking*>;  // by tensor
  using Drawn = std::vector<std::uint32_t>;

  /// v, and its k largest magnitudes, ties by lower index.
  static Chosen choose_largest(const Sending& tensors, Chosen rooms, const EntryFormat& format);
  /// v, and about its k largest magnitudes, by halving what lies between two thresholds.
  static Chosen choose_by_halving(const Sending& tensors, Chosen rooms, const EntryFormat& format,
                                  int halvings);
  /// v, and its magnitudes above a threshold that is fitted to their distribution.
  static Chosen choose_by_fit(const Sending& tensors, Chosen rooms,
                              const std::vector<Kept<StageControl>*>& controls,
                              const SidcoSettings& settings);
  /// v, and its magnitudes of tau or more. If these are too many, all of the tensor is sent.
  /// Without a tau it is the last step's, or the exact one if the last one picks far too few or too
  /// many.
  static Chosen choose_from(const Sending& tensors, Chosen rooms, const EntryFormat& format,
                            std::optional<float> tau, const std::vector<KeptNumber*>& taus);
  /// u and r with this step's gradients (method/dgc.cpp).
  static void accumulate(const Sending& tensors, const std::vector<KeptValues*>& u,
                         const std::vector<KeptValues*>& r, const DgcSettings& settings);
  /// About the largest magnitudes of what `kept` is after this step, by a sample of them.
  static Chosen choose_by_sample(const Sending& tensors, Chosen rooms, const EntryFormat& format,
                                 const std::vector<KeptValues*>& kept);
  static void clear(const Chosen& sent, const std::vector<KeptValues*>& kept);
  /// Means: with the momentum, which is kept.
  static void add_momentum(const Arriving& tensors, const std::vector<KeptValues*>& kept,
                           const DenseMomentum& rule);

  /// Payloads: the entries. What is sent leaves the residual.
  static void send_entries(const Sending& tensors, const Chosen& chosen, const EntryFormat& format);
  static Damage average_entries(const Arriving& tensors, const EntryFormat& format);
  /// Payloads: the values of v at drawn places, as one sum over the ranks.
  static void send_drawn(const Sending& tensors, const std::vector<Drawn*>& drawn, double density,
                         Places places);
  static void average_drawn(const Arriving& tensors, const std::vector<Drawn*>& drawn,
                            double density);
  /// Payloads: two bits an element, for -tau, 0 and tau.
  static void send(const Sending& tensors, const TwoBitFormat& format);
  static Damage receive(const Arriving& tensors, const TwoBitFormat& format);

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
  static void send_chunks(const ChunkCall& call, const Arrays& arrays,
                          const std::vector<Bytes>& rooms);
  static Damage average_chunks(const ChunkCall& call,
                               const std::vector<std::vector<Bytes>>& arrived, const Arrays& means);
  static Arrays own_chunks(const std::vector<TwoPhase*>& owners);
  static void keep_owed(const std::vector<TwoPhase*>&, const Arrays&) {}
};

/// Both factors of each matrix of a bucket, in a step.
class HostOps::LowRank {
 public:
  /// Makes factors of these sizes, all zeros.
  void begin(const std::vector<FactorSize*>& sizes);
  /// take() copies kept numbers to the factor, and leave() copies the factor to the kept ones.
  void take(Side side, const std::vector<KeptValues*>& kept);
  void leave(Side side, const std::vector<KeptValues*>& kept);

  /// Vectors get length 1. One of no length or no finite one is drawn from the tensor's stream.
  void make_unit(Side side, const Sending& tensors);
  void orthonormalise(Side side);
  /// For a factor whose other side had vectors that vanished: its own vectors of these numbers
  /// would stay zero for ever. They are drawn anew, so the next step tries other directions.
  void redraw_vanished(Side side);
  /// As orthonormalise(), with a drawn direction in the place of each vector that vanished.
  void orthonormalise_fresh(Side side, const Sending& tensors);

  /// Payloads: the pass's factor, scaled down by a power of two, headroom(). The other factor is
  /// scaled up by it, so their product is the same.
  void send(const Sending& tensors, const FactorPass& pass);
  void receive(Side side, const Arriving& tensors, std::string_view method, Taken taken);
  /// Means: P^T Q.
  void write_products(const Arriving& tensors);

 private:
  struct OfTensor {
    FactorSize size;
    std::vector<float> left, right;
    std::uint64_t stream = 0;
    std::vector<std::size_t> vanished = {};
    std::vector<float>& at(Side side) { return side == Side::left ? left : right; }
  };
  void send(OfTensor& factors, const Input& input, const FactorPass& pass);

  std::vector<OfTensor> tensors_;
};

}  // namespace linerate::compress
