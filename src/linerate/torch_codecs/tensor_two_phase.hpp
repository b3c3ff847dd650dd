// The two-phase exchange of one tensor (compress/two_phase.hpp), over tensors of any device.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "linerate/compress/two_phase.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

/// As compress::TwoPhase, call by call; payloads as TensorCodec has them, each of bound() bytes.
/// Nothing waits for the device but save() and load().
///
/// Thread safety: as compress::Codec.
class TensorTwoPhase {
 public:
  /// `compressor`: over_tensors() of that device, and fits_two_phase().
  TensorTwoPhase(const compress::Compressor& compressor, std::int64_t elements, int ranks, int rank,
                 at::Device device);

  const std::vector<compress::Chunk>& chunks() const { return chunks_; }
  std::int64_t bound(int chunk) const;

  TensorPayload encode(int chunk, const TensorInput& input);
  TensorPayload reduce(const TensorArrived& arrived, const compress::Keys& keys);
  /// `owners`: of each chunk its owner's payload; of an empty one not looked at.
  void finish(const std::vector<TensorArrived>& owners, const at::Tensor& mean);
  at::Tensor encode_dense(const TensorInput& input);  // u8[4 elements]
  void decode_dense(const at::Tensor& sum, int ranks, const at::Tensor& mean);

  /// bool: whether one of the payloads of the last reduce(), finish() or decode_dense() was
  /// damaged; undefined: none was.
  const at::Tensor& damaged() const { return damaged_; }

  /// As a TensorCodec's.
  void undo_if(const at::Tensor& none);
  void keep();
  void drop();
  compress::TwoPhaseState save();
  void load(const compress::TwoPhaseState& saved);

 private:
  /// A codec; none for a chunk that travels dense, as f32.
  struct Coder {
    std::unique_ptr<TensorCodec> codec;
    std::int64_t elements = 0, bound = 0;
  };

  static Coder coder_of(const compress::Compressor& compressor, std::int64_t elements);
  static TensorPayload encode(Coder& coder, const TensorInput& input);
  void decode(Coder& coder, const TensorArrived& arrived, const at::Tensor& mean);
  at::Tensor part(const at::Tensor& whole, std::size_t chunk) const;
  template <typename Act>
  void each_codec(Act&& act);

  std::vector<compress::Chunk> chunks_;
  std::vector<Coder> workers_;  // by chunk
  Coder server_;
  at::Tensor server_mean_;
  KeptTensor server_residual_;  // of no elements without error feedback
  at::Tensor damaged_;
};

}  // namespace linerate::torch_codecs
