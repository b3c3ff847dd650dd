// The compressors of a Plan where the parameters lie: what exec::Compression does, enqueued.
// Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linerate/exec/coded_bucket.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"
#include "linerate/torch_adapter/streams/late_values.hpp"
#include "linerate/torch_codecs/coded_parameter.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_adapter {

/// StepCompression on a device. Each task is enqueued in the current stream and reads no value; the
/// format, the state and the arithmetic are those of the host (exec/compression.hpp).
///
/// The host does not learn in time whether a step's gradients were finite. So the device decides: a
/// scalar bool tensor `none` tells whether the step counts with nothing in it. Each codec then
/// chooses between its old and its new state by that tensor. For example step 7 overflows. The host
/// has enqueued steps 8 and 9 before it hears of that. It does not matter, because `none` of step 7
/// has kept the residual of step 6, which steps 8 and 9 use.
///
/// save() waits for the device. Every keep() is followed by settle() or take_back().
///
/// Thread safety: one call at a time.
class StreamCompression final
    : public exec::CompressionOver<torch_codecs::TensorOps, torch_codecs::CodedParameter,
                                   at::Tensor> {
 public:
  /// `memory` outlives it. The seed is the same on every rank.
  StreamCompression(PayloadMemory& memory, c10::Device device, int rank, int ranks,
                    std::uint64_t seed);

  /// Whether it can run a compressor of this name. It runs all that are built in, and none of a
  /// program's own, because those code memory of the host.
  static bool codes(const std::string& compressor);

  void set_plan(std::shared_ptr<const doc::Plan> plan) override;
  void begin_step() override;
  void begin_dense(const doc::TaskGraph& graph, std::span<const compress::Shape> shapes) override;
  struct DenseMean {
    const std::string& name;
    compress::Shape shape;
    at::Tensor mean;  // f32[elements], written
  };
  /// Does nothing for parameters that the compressor codes.
  void take_dense_means(const std::vector<DenseMean>& means);
  /// A scalar bool tensor: whether this rank found gradients that are not usable
  /// (exec/compression.hpp) in a bucket that is encoded. They were taken for zero. Valid after the
  /// step's last encode.
  at::Tensor found_infinite() const;
  /// Ends a step that counts, when all its decodes are enqueued. Residuals and codecs are those
  /// after the step, or those before it if the scalar bool tensor `none` is true. `none` may be
  /// undefined if the step neither encoded nor sent a residual.
  void settle(const at::Tensor& none);
  /// In place of settle(), for a step that was kept: now it counts on no rank.
  void take_back();
  /// Whether a payload of an earlier step was malformed, once that is known.
  bool was_damaged() { return damaged_late_.take().value_or(false); }

  void load(compress::CompressionState state) override;

  void run(const doc::TaskGraph& graph, const doc::Task& task) override;

 private:
  using Parameter = torch_codecs::CodedParameter;
  using Arrived = torch_codecs::TensorArrived;

  /// Residuals of a bucket's tensors, laid out as the bucket is, so that one operator handles the
  /// whole bucket. Variants that cut the bucket in the same way share a Home.
  struct Home {
    at::Tensor residual, next;  // f32; undefined: the method keeps none
    std::vector<Parameter*> tensors;
    bool is_touched = false;  // by this step
  };
  Home& home_of(const CodedBucket& bucket, const at::Tensor& values);
  at::Tensor values_of(const CodedBucket& bucket, std::int32_t payload) override;
  at::Tensor bytes_of(const CodedBucket& bucket, std::int32_t payload) override;
  void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) override;
  void multiply(const std::vector<at::Tensor>& values, float by) override;
  torch_codecs::TensorOps::Arrays arrays_of(const CodedBucket& bucket,
                                            const at::Tensor& values) const override;
  void begin_tensors(CodedBucket& bucket, const at::Tensor& values) override;

  void check_usable(const CodedBucket& bucket, const at::Tensor& values);
  static std::vector<at::Tensor> parts_in(const CodedBucket& bucket, std::size_t round,
                                          const at::Tensor& payload);
  std::vector<Arrived> arrived_in(const CodedBucket& bucket, std::size_t round,
                                  const std::vector<at::Tensor>& payloads) const;
  /// Returns the codec that has coded all.
  torch_codecs::TensorOps::Codec& encode_all(CodedBucket& bucket, std::size_t round,
                                             const std::vector<at::Tensor>& payloads,
                                             torch_codecs::TensorOps::Block* block,
                                             const at::Tensor& values);
  void decode_all(CodedBucket& bucket, std::size_t round, std::vector<Arrived> arrived,
                  torch_codecs::TensorOps::Block* block, const at::Tensor& values);
  void encode_sum(CodedBucket& bucket, std::size_t round, const at::Tensor& values) override;
  void encode_gathered(CodedBucket& bucket, const at::Tensor& values) override;
  void decode_sum(CodedBucket& bucket, std::size_t round, const at::Tensor& values) override;
  void decode_gathered(CodedBucket& bucket, const at::Tensor& values) override;
  at::Tensor block_of(const CodedBucket& bucket, int rank);
  void note_damage(const CodedBucket& bucket, const at::Tensor& damaged) override;

  PayloadMemory& memory_;
  c10::Device device_;
  std::map<std::vector<const std::string*>, Home> homes_;  // by the names of a bucket's tensors
  // Of this step, by bucket: tasks of several may run at a time.
  at::Tensor usable_, damaged_;      // bool[buckets]
  std::vector<at::Tensor> checked_;  // views of usable_, as far as this step has written it
  bool may_be_damaged_ = false;
  LateAnswer damaged_late_;
  LateAnswer none_late_;
};

}  // namespace linerate::torch_adapter
