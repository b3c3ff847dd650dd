// A codec over tensors of any device, by LibTorch's operations alone, in the format of the codec of
// compress: a rank that codes on its processor and one that codes on a GPU decode each other. The
// formats, sizes and options are those of compress; here is only how tensors are made into them.
//
// encode() and decode() never wait for the device, but for those that say so (sidco): what depends
// on the values is a tensor of one element. Payloads have the round's bytes; if that is a bound,
// what is not used of it is zeros, and `used` says how much is. A payload that is damaged cannot be
// thrown about without waiting for the device: damaged() tells it, to be read when it suits.
//
// The seam for kernels of our own: make_tensor_codec() alone knows which class codes what.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::torch_codecs {

/// As compress::Input.
struct TensorInput {
  at::Tensor gradient;  // f32[elements], contiguous
  at::Tensor residual;  // f32[elements], contiguous, written; undefined: v = gradient
  compress::Keys keys;
  int ranks = 1;
  int phase = -1;
  std::optional<float> loss_scale = {};
};

struct TensorPayload {
  at::Tensor bytes;  // u8[the round's bytes]
  at::Tensor used;   // i64, of `bytes`; undefined: all
};

/// As compress::Arrived. Payloads of a bound are padded to it.
struct TensorArrived {
  std::vector<at::Tensor> payloads;  // u8[the round's bytes] each
  int ranks = 1;
  at::Tensor used;  // i64[payloads] as their senders said; undefined: not checked
};

/// Numbers of a codec as the last step that counted left them, and as this one does, on any device.
/// Thread safety: as its codec: one thread at a time.
class KeptTensor : public compress::KeptField {
 public:
  explicit KeptTensor(at::Tensor first) : now_(std::move(first)) {}

  const at::Tensor& now() const;
  /// As this step leaves it, which nobody else writes to; now() if it did not.
  const at::Tensor& next() const { return next_.defined() ? next_ : now(); }
  void write(at::Tensor value) { next_ = std::move(value); }
  /// As this step leaves it is as it was, if `none` says so: bool, of no dimensions.
  void undo_if(const at::Tensor& none);

  void keep() override;
  void drop() override { next_.reset(); }
  /// A copy on the host, which waits for the device; what is written to it counts from then on.
  std::span<std::byte> bytes() override;

 private:
  mutable at::Tensor now_, lent_;  // what was lent is looked at again when it is asked for
  at::Tensor next_;
};
compress::StateField state_field(std::string name, compress::Passing passing, KeptTensor& kept,
                                 bool is_array = true);

/// What an implementation is made of.
struct Making {
  std::shared_ptr<const compress::Compressor> compressor;
  compress::Shape shape;
  at::Device device;
  bool travels_dense = false;  // nothing is encoded, and what arrives is the mean
};

/// Of two answers, bool; undefined: no.
at::Tensor either(const at::Tensor& a, const at::Tensor& b);

/// Thread safety: as compress::Codec.
class TensorCodec : public compress::Codec {
 public:
  explicit TensorCodec(Making making);

  /// As compress::Codec's. Tensors are on the codec's device.
  TensorPayload encode(int round, const TensorInput& input);
  void decode(int round, const TensorArrived& arrived, const at::Tensor& mean);
  /// For what codes tensors without encode() and decode(): the rounds are this phase's, and nothing
  /// is known to be damaged.
  void begin(int phase);
  void begin_decode() { damaged_.reset(); }
  /// bool: whether a payload of the last decode() was none that the method sends; the mean is then
  /// of no use, and nothing else is. Undefined: none was.
  const at::Tensor& damaged() const { return damaged_; }
  /// As compress::Codec's overflowed(): bool, of no dimensions; undefined: no.
  virtual at::Tensor overflowed_there() const { return {}; }

  /// For a step that counts with nothing in it if `none` says so (bool, of no dimensions): then all
  /// tensors of state() are as they were, whatever this step wrote. Before keep(). What the host
  /// counts goes on.
  void undo_if(const at::Tensor& none);

  bool overflowed() const final {
    const at::Tensor there = overflowed_there();
    return there.defined() && there.item<bool>();
  }

  /// The same of memory of the host, copied to the device and back: this waits. Throws InputError
  /// for a damaged payload.
  std::size_t encode(int round, const compress::Input& input, std::span<std::byte> payload) final;
  void decode(int round, const compress::Arrived& arrived, std::span<float> mean) final;

 protected:
  virtual TensorPayload do_encode(int round, const TensorInput& input) = 0;
  virtual void do_decode(int round, const TensorArrived& arrived, const at::Tensor& mean) = 0;
  /// Notes a check of what arrived that failed.
  void damage_if(const at::Tensor& wrong) { damaged_ = either(damaged_, wrong); }

  const compress::Compressor& compressor() const { return *making_.compressor; }
  const compress::Shape& shape() const { return making_.shape; }
  std::int64_t elements() const { return making_.shape.elements; }
  at::Device device() const { return making_.device; }
  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions().device(making_.device).dtype(type);
  }
  /// Of a round of the phase that was encoded last.
  const compress::Round& round_at(int round) const { return rounds_.at(to_index(round)); }

 private:
  Making making_;
  int phase_ = -1;
  std::vector<compress::Round> rounds_;
  at::Tensor damaged_;
};

/// The codec of a tensor of that shape, whose rounds() are not empty. Throws UsageError for a
/// compressor that has no implementation over tensors.
std::unique_ptr<TensorCodec> make_tensor_codec(const doc::Component& compressor,
                                               const compress::Shape& shape, at::Device device);
/// As Compressor::of_dense(). Null: the mean is what the optimizer gets.
std::unique_ptr<TensorCodec> make_dense_tensor_codec(const doc::Component& compressor,
                                                     const compress::Shape& shape,
                                                     at::Device device);
/// What over_tensors() makes.
std::unique_ptr<TensorCodec> as_tensor_codec(std::unique_ptr<compress::Codec> codec);
/// The registered compressors that have none.
std::vector<std::string> compressors_without_tensors();

/// The registered compressor with its codecs over tensors, with the interface of memory of the
/// host: what suites of compress run on, and the two-phase exchange.
std::unique_ptr<const compress::Compressor> over_tensors(const doc::Component& compressor,
                                                         at::Device device = at::kCPU);

}  // namespace linerate::torch_codecs
