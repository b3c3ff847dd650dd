// A parameter as codecs over tensors see it on one rank, with what a step leaves for the next one.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {

/// As compress::CodedTensor, call by call, on a device. Residual, momentum and factors stay there.
/// state() has the host's form, so either class goes on from the other's state. Nothing waits for
/// the device but state(), use() of another method than before or of what was loaded, and codecs
/// that say so (sidco).
///
/// Tensors that outlive a call are made in the stream that is current in it. Afterwards they are
/// only written in place, because their memory belongs to that stream.
///
/// Thread safety: one thread at a time.
class CodedParameter : public compress::ParameterCodecs {
 public:
  CodedParameter(std::string name, const compress::Shape& shape,
                 compress::CompressedTensorState saved, at::Device device);

  /// `method`: its compressor is over_tensors() of the device.
  void use(const compress::TensorMethod& method);

  /// The memory of its residual and of the residual that a step leaves, from now on, f32[elements]
  /// each. Those of a bucket's tensors are in one array, so that one operator is enough for all.
  /// The giver of the memory copies the residual before a step, and takes over the one that the
  /// step leaves. For a method with error feedback.
  void live_in(const at::Tensor& residual, const at::Tensor& next);
  bool lives_in(const at::Tensor& residual) const {
    return !keeps_ || residual_.data_ptr() == residual.data_ptr();
  }
  /// Drops what the step made of the residual.
  void forget_next() {
    if (keeps_) next_.copy_(residual_);
  }

  /// `gradient`: f32[elements], as all here.
  void begin_step(std::uint64_t seed, std::int64_t step, int rank, const at::Tensor& gradient);
  /// As CodedTensor's: f32[elements]; undefined: nothing is owed. It stays defined, of zeros, after
  /// a step that counts until forget_sent().
  at::Tensor begin_dense(int rank);
  /// The codec is about to take the mean of a gradient that travelled dense.
  void begin_dense_mean() { is_touched_ = true; }
  /// Adds what this step may have written of codec and owner.
  void add_kept(std::vector<KeptTensor*>& to) const;
  /// The step counts; if `none` says so (bool, of no dimensions) with nothing in it: then what is
  /// owed is as before. What add_kept() gives is undone by then (KeptTensor::undo_if).
  /// Returns whether it sent what was owed with its gradient.
  bool keep(const at::Tensor& none);
  /// The host has learnt of each keep() that returned true since the last call whether there was
  /// nothing in one of them.
  void forget_sent(bool was_none);

  /// What a codec of all tensors of a bucket needs of this one.
  TensorOps::Codec* codec() const { return static_cast<TensorOps::Codec*>(codec_.get()); }
  bool keeps_residual() const { return keeps_; }

  compress::CompressedTensorState state() const;

 private:
  at::Tensor zeros() const;
  void set_residual(const std::vector<float>& from);

  at::Device device_;
  at::Tensor residual_;    // as the last step that counts left it; undefined: nothing is owed
  at::Tensor next_;        // as this step leaves it
  bool was_sent_ = false;  // by a step that is kept, unless there was nothing in it
};

}  // namespace linerate::torch_codecs
