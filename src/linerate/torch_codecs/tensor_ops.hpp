// The back end of codecs that works where tensors lie. One operator works on all tensors of a
// bucket, or one of ATen's foreach operators on 64 of them. The other back end is
// compress/host_ops.hpp. compress/ops-inl.hpp says what each function does.
//
// Nothing here waits for the device, unless it says so. So an answer that depends on values, such
// as a flag or a payload's size, is a tensor too.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/factors.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::compress {
class TwoPhase;
struct ChunkCall;
}  // namespace linerate::compress

namespace linerate::torch_codecs {

struct Magnitudes;

/// At most so many elements of a bucket are coded together, or one larger tensor. The memory for
/// intermediate results follows from this number, not from the bucket, which may be a whole model.
inline constexpr std::int64_t kMostTogether = std::int64_t{1} << 24;

struct TensorOps {
  class Codec;
  template <class T>
  using OfAll = const std::vector<T*>&;  // what the codecs of a call's tensors have, by tensor
  struct Room {};
  using Flag = at::Tensor;                 // bool, of no dimensions; undefined: no
  using Damage = at::Tensor;               // the same, of what arrived
  using Values = std::vector<at::Tensor>;  // f32, by tensor
  using KeptValues = KeptTensor;           // of one tensor, from step to step
  using KeptNumber = KeptTensor;           // the same, of no dimensions
  using Making = torch_codecs::Making;

  /// Where a tensor is among its bucket's elements.
  struct Place {
    std::int64_t first = 0, elements = 0;
  };
  /// The tensors as views of an array that is laid out as the bucket.
  static std::vector<at::Tensor> parts_of(const at::Tensor& array,
                                          const std::vector<Place>& places);

  /// Payloads whose sizes only the device has, laid out as in exec/compression. Each one's bytes
  /// (u32) come first, then the payload in whole words. After the last one there are zeros.
  struct Block {
    at::Tensor bytes;      // u8[..][of all]: of several ranks if it has arrived
    at::Tensor end = {};   // [..]: words of those that were coded so far; undefined: none was
    bool goes_on = false;  // others of the bucket are decoded after these
  };

  /// As HostOps has them; arrays have the whole bucket, which may have more than these tensors.
  struct Sending {
    at::Tensor values;                 // f32: gradients
    at::Tensor residual;               // f32: as the last step left it; undefined: none is kept
    at::Tensor next;                   // f32, written: as this step leaves it; may be `residual`
    std::vector<Place> places;         // of the tensors
    std::vector<at::Tensor> payloads;  // u8, written: of each tensor the round's bytes
    at::Tensor used;                   // i64[tensors], written: bytes of it, if a bound
    std::vector<compress::Keys> keys;
    std::vector<Codec*> codecs;
    int ranks = 1;  // Input's, as those that follow
    int phase = -1;
    std::optional<float> loss_scale = {};
    Block* block = nullptr;  // takes payloads whose round is_bound, in the place of payloads, used
    std::int64_t together = kMostTogether;

    bool keeps_residual() const { return next.defined(); }
  };
  struct Arriving {
    at::Tensor means;  // f32, written where the tensors are
    std::vector<Place> places;
    std::vector<TensorArrived> arrived;  // by tensor
    std::vector<Codec*> codecs;
    Block* block = nullptr;  // has what has arrived, in the place of `arrived`
    int of_ranks = 1;        // of the block's mean
    std::int64_t together = kMostTogether;

    void note_damage(const Damage& damage) const;
  };

  /// next = residual + gradients, and no more than the residual where no tensor of these is.
  static void add_residuals(const Sending& tensors);
  /// v: views of `next` after that, or of the gradients.
  static Values corrected(const Sending& tensors);

  static KeptValues kept_zeros(const Making& making, std::int64_t elements) {
    return KeptValues(
        at::zeros({elements}, at::TensorOptions().device(making.device).dtype(at::kFloat)));
  }
  static KeptNumber kept_zero(const Making& making) {
    return KeptNumber(at::zeros({}, at::TensorOptions().device(making.device).dtype(at::kFloat)));
  }
  static float number_of(const KeptNumber& kept) { return kept.now().item<float>(); }
  static compress::StateField field(std::string name, compress::Passing passing, KeptTensor& kept) {
    return {std::move(name), passing, kept, kept.now().dim() > 0};
  }
  static void set_means(const Arriving& tensors, const Values& values);

  struct Picking {};  // nothing stays
  struct Chosen {
    Values v;                        // of each tensor, where the rest of it is kept
    std::shared_ptr<Magnitudes> of;  // of v; x may be written
    at::Tensor places;  // i64[all]: where in x what is sent is, ascending; undefined: by the mask
    at::Tensor mask;    // bool, of x: what is sent
    at::Tensor counts;  // [tensors]: of the mask
    at::Tensor is_all;  // bool[tensors]: all of a tensor, whatever the mask says; undefined: none
  };
  using Drawn = at::Tensor;  // i64: places in the bucket, of all tensors; the first codec's

  class LowRank;

  // Of the two-phase exchange, as HostOps has it.
  using Bytes = at::Tensor;  // u8
  struct Arrays {
    at::Tensor values, residual;  // f32; residual: undefined: none is kept
  };
  static at::Tensor part(const at::Tensor& all, std::int64_t first, std::int64_t count) {
    return all.narrow(0, first, count);
  }

#include "linerate/compress/ops-inl.hpp"
};

/// A codec that codes all tensors of a bucket in a call. The first one of those that are coded
/// together does it; what a step keeps between its calls is its.
/// Thread safety: as compress::Codec.
class TensorOps::Codec : public compress::Codec {
 public:
  explicit Codec(const Making& making) : making_(making) {}

  /// As compress::Codec's, of all tensors.
  void encode_bucket(int round, const Sending& tensors);
  void decode_bucket(int round, const Arriving& tensors);

  virtual void encode_all(int round, const Sending& tensors) = 0;
  virtual void decode_all(int round, const Arriving& tensors) = 0;
  /// After encode_all(): as compress::Codec's overflowed(). Undefined: no.
  virtual Flag is_beyond() const { return {}; }
  /// The same after encode_bucket().
  const Flag& any_beyond() const { return any_beyond_; }
  bool overflowed() const final { return any_beyond_.defined() && any_beyond_.item<bool>(); }

  /// Its payload of this round has no more than these bytes.
  void sends(std::int64_t bytes) { sent_ = bytes; }
  std::int64_t sent() const { return sent_; }  // -1: all of it
  /// bool: whether a payload of the last decode was none that the method sends; the means are then
  /// of no use, and nothing else is. Undefined: none was.
  const at::Tensor& damaged() const { return damaged_; }
  void note_damage(const Damage& damage) { damaged_ = either(damaged_, damage); }
  /// What of state() is on the device.
  std::vector<KeptTensor*> kept();

  /// The same of memory of the host, copied to the device and back: this waits. Throws InputError
  /// for a damaged payload.
  std::size_t encode(int round, const compress::Input& input, std::span<std::byte> payload) final;
  void decode(int round, const compress::Arrived& arrived, std::span<float> mean) final;

 private:
  Making making_;
  at::Tensor damaged_, any_beyond_;
  std::int64_t sent_ = -1;  // all
};
using TensorCodec = TensorOps::Codec;

/// The codec of a tensor of that shape, whose rounds() are not empty. Throws UsageError for a
/// compressor that has no implementation over tensors.
std::unique_ptr<TensorCodec> make_tensor_codec(const doc::Component& compressor,
                                               const compress::Shape& shape, at::Device device);

/// The registered compressor with its codecs over tensors, with the interface of memory of the
/// host, which suites of compress run on.
std::unique_ptr<const compress::Compressor> over_tensors(const doc::Component& compressor,
                                                         at::Device device = at::kCPU);

/// As HostOps has it. Matrices of one shape lie one after the other, and are multiplied together.
class TensorOps::LowRank {
 public:
#include "linerate/compress/low_rank_ops-inl.hpp"

 private:
  struct Group {
    compress::FactorSize size;
    std::int64_t first = 0, count = 0;  // of order_
    at::Tensor matrices;                // f32[count][rows][columns] of the step at hand
  };

  std::int64_t rank() const { return groups_.front().size.rank; }  // of all, as all are worth it
  const Group& group_of(std::int64_t k) const;
  Values in_order(const Values& by_tensor) const;
  static Values each_of(const Values& by_group);
  at::Tensor joined(compress::Side side, const Values& factors) const;
  at::Tensor of_group(const Group& group, compress::Side side) const;
  at::Tensor drawn(compress::Side side, const Sending& tensors, std::int64_t vectors) const;
  void make_matrices(const Sending& tensors);
  void keep_rest(const Sending& tensors, compress::Side side, const Values& factors);

  std::vector<std::size_t> order_;  // tensors, those of one shape one after the other
  std::vector<Group> groups_;
  compress::BySide<at::Tensor> factor_;  // f32[tensors][rank][longest]
  // What replaces vectors that vanish, and whether they did, bool[tensors][rank][1].
  at::Tensor fresh_, vanished_;
};

/// The payloads of a sum over the ranks, as elements of a type; elements_of(t) says how many a
/// tensor has. Other sizes are refused.
template <class ElementsOf>
TensorOps::Values sums_in(const TensorOps::Arriving& tensors, at::ScalarType type,
                          std::string_view method, ElementsOf&& elements_of) {
  TensorOps::Values sums;
  for (std::size_t t = 0; t < tensors.arrived.size(); ++t) {
    const auto bytes = static_cast<std::int64_t>(c10::elementSize(type)) * elements_of(t);
    check_sum(tensors.arrived[t], bytes, method);
    sums.push_back(tensors.arrived[t].payloads[0].view(type));
  }
  return sums;
}

}  // namespace linerate::torch_codecs
