// A codec over tensors of any device, by LibTorch's operations alone, in the format of the codec of
// compress. So a rank that codes on its processor and one that codes on a GPU decode each other's
// payloads. Formats, sizes and options are those of compress. Only the work on tensors is here.
//
// encode() and decode() never wait for the device, except in codecs that say so (sidco). An answer
// that depends on the values is a tensor of one element. Payloads have the round's bytes. If that
// is a bound, the unused rest is zeros, and `used` has the number of bytes before it. A damaged
// payload cannot be thrown about without waiting for the device. So damaged() is a tensor, which
// the caller reads later.
//
// Example of a step on three ranks with topk: each rank enqueues encode(), the all-gather of three
// payloads, and decode(), one after the other. The host goes on at once. When it reads the flags of
// the step anyway, it reads damaged() as well, and only then throws.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::torch_codecs {

/// As compress::Arrived. Payloads of a bound may be padded to it.
struct TensorArrived {
  std::vector<at::Tensor> payloads;  // u8[the round's bytes, or those of a bound that are used]
  int ranks = 1;
  at::Tensor used;  // i64[payloads] as their senders said; undefined: not checked
};

/// Numbers of a codec as the last step that counted left them, and as this one does, on any device.
/// Those of several tensors may be parts of one array, so that an operator is enough for all.
/// Thread safety: as its codec: one thread at a time.
class KeptTensor : public compress::KeptField {
 public:
  explicit KeptTensor(at::Tensor first) : now_{std::move(first), {}} {}

  const at::Tensor& now() const;
  /// As this step leaves it, which nobody else writes to; now() if it did not.
  const at::Tensor& next() const { return next_.value.defined() ? next_.value : now(); }
  /// What write() was given last in this step.
  const at::Tensor& next_array() const { return next_.array; }
  /// `array`: whose part the value is, if all of it is of such values.
  void write(at::Tensor value, at::Tensor array = {}) {
    next_ = {std::move(value), std::move(array)};
  }
  /// The array whose parts all of these are now, each at its place in `places`; undefined: there is
  /// no such array.
  template <class Place>
  static at::Tensor array_of(const std::vector<KeptTensor*>& kept,
                             const std::vector<Place>& places) {
    kept.front()->now();
    const at::Tensor array = kept.front()->now_.array;
    if (!array.defined()) return {};
    for (std::size_t t = 0; t < kept.size(); ++t) {
      kept[t]->now();
      const Part& part = kept[t]->now_;
      if (!part.array.is_same(array) || part.offset() != places[t].first ||
          part.value.numel() != places[t].elements)
        return {};
    }
    return array;
  }
  /// As this step leaves them they are as they were, if `none` says so: bool, of no dimensions.
  static void undo_if(const std::vector<KeptTensor*>& kept, const at::Tensor& none);

  void keep() override;
  void drop() override { next_ = {}; }
  /// A copy on the host, which waits for the device; what is written to it counts from then on.
  std::span<std::byte> bytes() override;

 private:
  struct Part {
    at::Tensor value, array;
    std::int64_t offset() const { return value.storage_offset() - array.storage_offset(); }
  };
  mutable Part now_;
  mutable at::Tensor lent_;  // is looked at again when it is asked for
  Part next_;
};

/// What an implementation is made of.
struct Making {
  compress::Shape shape;
  at::Device device;
};

/// Of two answers, bool; undefined: no.
at::Tensor either(const at::Tensor& a, const at::Tensor& b);

/// What `make`, a function or a member, gives for each of a list.
template <class List, class Make>
auto mapped(const List& list, Make make) {
  std::vector<std::decay_t<std::invoke_result_t<Make, decltype(*list.begin())>>> all;
  all.reserve(list.size());
  for (const auto& one : list) all.push_back(std::invoke(make, one));
  return all;
}
/// The memory of each one as elements of a type.
inline std::vector<at::Tensor> viewed(const std::vector<at::Tensor>& all, at::ScalarType type) {
  return mapped(all, [type](const at::Tensor& one) { return one.view(type); });
}

// The integer arithmetic of payloads with operators of tensors. It has bits of floats, packed
// codes, and compress's random numbers (core/random.hpp, compress/cast.hpp), to the bit.
// Tensors have signed integers only. Products and sums wrap around alike, and only shifts to the
// right and conversions to wider types need care.

/// Shifts i32 or i64 to the right as unsigned numbers. Example for i32: -1 by 28 is 15.
at::Tensor shifted_right(const at::Tensor& x, int by);
/// Floats' bits as i32, and back.
at::Tensor bits_of(const at::Tensor& floats);
at::Tensor floats_of(const at::Tensor& bits);
/// The unsigned values of u32 in i32 memory, as i64.
at::Tensor unsigned_of(const at::Tensor& words);
/// compress/kernel/kernels.hpp's, i32.
at::Tensor magnitude_bits(const at::Tensor& floats);

/// A contiguous tensor's memory: u8.
at::Tensor bytes_of(const at::Tensor& x);
/// kernel/pack_codes.hpp's: u8 codes of 1, 2, 4 or 8 bits (upper bits are 0) to ceil(n bits / 8)
/// bytes, and back.
at::Tensor pack_codes(const at::Tensor& codes, int bits);
at::Tensor unpack_codes(const at::Tensor& bytes, std::int64_t n, int bits);

/// random_bits() and random_unit() of keys and counters that are broadcast, i64 and f64.
at::Tensor random_bits(const at::Tensor& key, const at::Tensor& counter);
at::Tensor random_unit(const at::Tensor& key, const at::Tensor& counter);
/// The rounding bits of whole blocks: i32[blocks][kRoundingBlock]. `keys` has random_bits(key,
/// block) of each block.
at::Tensor rounding_blocks(const at::Tensor& keys);

/// compress/payload.hpp's checks of sizes, which the host has without waiting for the device.
void check_gathered(const TensorArrived& arrived, std::int64_t bytes, std::string_view method);
void check_sum(const TensorArrived& arrived, std::int64_t bytes, std::string_view method);
/// Refuses gathered payloads of more bytes.
void check_bound(const TensorArrived& arrived, std::int64_t bytes, std::string_view method);

/// f64[rows][columns] to sums[rows], with the 16 lanes of kernel/lanes-inl.hpp and so to the bit.
/// columns are a multiple of 16.
at::Tensor sums_of_16_lanes(const at::Tensor& x);

}  // namespace linerate::torch_codecs
