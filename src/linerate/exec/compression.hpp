// The compressors of a Plan at work on one rank: codecs and residuals by parameter, and the encode
// and decode tasks of each bucket.
//
// A runner calls run() for each such task, in the codec's lane. The training step calls the rest,
// between steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/compression_state.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/exec/coded_bucket.hpp"
#include "linerate/exec/step_compression.hpp"

namespace linerate::exec {

/// Gradients of a greater magnitude count as infinite under a strategy that compresses. Residuals,
/// momenta and products of factors add gradients up over steps, ranks and elements. No network
/// trains on such numbers, and even 10^19 of them add up to a finite f32.
inline constexpr float kGreatestGradient = 0x1p64f;
/// Whether a step with these gradients may count: none of them is infinite, as above, or a NaN.
/// `scale`: what the loss was multiplied by; a magnitude counts in units of the loss.
bool are_usable(std::span<const float> gradients, float scale = 1);

/// StepCompression on this rank's processor, over memory of the host.
///
/// The life of a residual, in three steps. Step 7 encodes: each codec writes its new residual next
/// to the old one. keep() says that step 7 counts, but its decodes may still run, and a decode may
/// write the state as well. So nothing moves yet. begin_step() of step 8 comes after those decodes;
/// settle() then makes the new residual the codec's. If step 8 overflows, drop() throws its new
/// residual away at once, and step 9 encodes with the residual of step 7.
class Compression : public StepCompression {
 public:
  /// `payloads` outlives it. The seed is the same on every rank.
  Compression(Payloads& payloads, int rank, int ranks, std::uint64_t seed)
      : payloads_(payloads),
        rank_(rank),
        ranks_(ranks),
        seed_(seed),
        buckets_(rank, ranks, compress::make_compressor,
                 [](const auto& name, const auto& shape, compress::CompressedTensorState state) {
                   return std::make_unique<compress::CodedTensor>(name, shape, std::move(state));
                 }) {}

  /// Names of the operations in a Plan that this one runs; empty if nothing is compressed.
  static std::set<std::string> operations_of(const doc::Plan& plan);

  void set_plan(std::shared_ptr<const doc::Plan> plan) override {
    buckets_.set_plan(std::move(plan));
  }
  std::string phase() const override { return buckets_.phase(); }
  void begin_step() override;
  void begin_dense(const doc::TaskGraph& graph, std::span<const compress::Shape> shapes) override;
  /// The residual that a gradient which travels dense takes along: [elements], row by row, in
  /// gradient units. Empty: none.
  std::span<const float> owed(std::int32_t position) const {
    return owed_.empty() ? std::span<const float>() : owed_[to_index(position)];
  }
  /// Whether any gradient takes a residual along in this step.
  bool sends_owed() const { return !owed_.empty(); }
  /// Gradients that are not usable were found in this step, in a bucket that is encoded. They were
  /// taken for zero, and the step must not count.
  bool found_infinite() const { return infinite_; }
  bool sees_dense_means() const override { return buckets_.sees_dense_means(); }
  /// Does nothing for a parameter that the compressor codes. `mean` is that of scaled gradients.
  void take_dense_mean(const std::string& name, const compress::Shape& shape,
                       std::span<float> mean);
  void keep(std::set<std::string> unused = {}) override;
  void drop() override;

  compress::CompressionState save() const override;
  void load(compress::CompressionState state) override { buckets_.load(std::move(state)); }

  void run(const doc::TaskGraph& graph, const doc::Task& task) override;

 private:
  using CodedBucket = CodedBucketOf<compress::CodedTensor>;

  void settle() const;
  void check_usable(std::span<float> values);
  void encode(const doc::TaskGraph& graph, CodedBucket& bucket, std::span<float> values);
  void encode_sum(CodedBucket& bucket, std::size_t round, std::span<float> values,
                  std::span<std::byte> payload);
  std::size_t encode_gathered(CodedBucket& bucket, std::span<float> values,
                              std::span<std::byte> own);
  void encode_round(const doc::TaskGraph& graph, CodedBucket& bucket, std::size_t round,
                    std::span<float> values);
  void decode(const doc::TaskGraph& graph, CodedBucket& bucket, std::span<float> values);
  void decode_sum(CodedBucket& bucket, std::size_t round, std::span<const std::byte> payload,
                  std::span<float> values);
  void decode_gathered(const doc::TaskGraph& graph, CodedBucket& bucket,
                       std::span<const std::byte> payload, std::span<float> values);
  void send_dense(const doc::TaskGraph& graph, const CodedBucket& bucket,
                  std::span<const float> values);
  void take_dense(const doc::TaskGraph& graph, const CodedBucket& bucket, std::span<float> values);
  std::span<float> dense_of(const doc::TaskGraph& graph, const CodedBucket& bucket);
  std::span<float> values_of(const doc::TaskGraph& graph, std::int32_t bucket);
  std::span<std::byte> bytes_of(const doc::TaskGraph& graph, std::int32_t payload);
  std::span<std::int64_t> counts_of(const doc::TaskGraph& graph, const CodedBucket& bucket);

  Payloads& payloads_;
  int rank_, ranks_;
  std::uint64_t seed_;
  CodedBuckets<compress::CodedTensor> buckets_;
  std::vector<std::span<const float>>
      owed_;  // by position: residuals to send dense; empty: none in this step
  /// The parameters that no rank used, of a step that counts and whose decodes may still run.
  /// Absent: no such step.
  mutable std::optional<std::set<std::string>> counted_;
  bool infinite_ = false;
  bool in_step_ = false;
};

}  // namespace linerate::exec
