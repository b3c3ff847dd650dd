// The compressors of a Plan at work on one rank: codecs and residuals by parameter, and the encode
// and decode tasks of each bucket.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/exec/compression_state.hpp"
#include "linerate/exec/operation.hpp"

namespace linerate::exec {

/// The encode and decode operations of training Plans that compress. What a step leaves behind
/// (residuals, warm-started factors) counts once it is accepted: keep() or drop() ends each step.
///
/// Buckets hold gradients in their own units (not divided by the ranks); decode writes the mean
/// over the ranks. Residuals belong to parameters, by name: another cut into buckets moves nothing.
class Compression : public Operation {
 public:
  /// `payloads` outlives it. The seed is that of every rank.
  Compression(Payloads& payloads, int rank, int ranks, std::uint64_t seed);
  ~Compression() override;

  /// Names of the operations in a Plan that this one runs; empty where nothing is compressed.
  static std::set<std::string> operations_of(const doc::Plan& plan);

  /// Codecs and residuals are kept where name, shape and compressor stay. Nothing is under way.
  void set_plan(std::shared_ptr<const doc::Plan> plan);
  /// Before the tasks of a step. Random numbers are drawn from the number of steps that counted.
  void begin_step() { infinite_ = false; }
  /// An infinity or a NaN was found in this step: it was taken for zero, and the step must not
  /// count.
  bool found_infinite() const { return infinite_; }
  /// The step counts, on every rank; or on none, and its codecs are as they were before.
  void keep();
  void drop();

  /// Between steps. load() before the first one, or instead of what there is: parameters that it
  /// does not name begin anew, and codecs of another compressor do; residuals stay.
  CompressionState save() const;
  void load(CompressionState state);

  void run(const doc::TaskGraph& graph, const doc::Task& task) override;

  /// Bytes of residuals and of what codecs remember.
  std::int64_t residual_bytes() const;

 private:
  struct Tensor;  // one parameter's
  struct Bucket;  // one bucket of a variant

  Tensor& tensor_of(const std::string& name, const compress::Shape& shape);
  Bucket& bucket_of(const doc::TaskGraph& graph, std::int32_t bucket);
  void encode(const doc::TaskGraph& graph, const doc::Task& task, std::size_t round);
  void encode_part(Tensor& tensor, const compress::Part& part, std::span<float> gradient,
                   std::size_t round, const compress::BucketRound& whole,
                   std::span<std::byte> payload);
  void decode(const doc::TaskGraph& graph, const doc::Task& task);
  void decode_round(const doc::TaskGraph& graph, Bucket& bucket, std::size_t round,
                    std::span<float> values);
  void copy_dense(const doc::TaskGraph& graph, Bucket& bucket, std::span<float> values, bool back);
  std::span<float> values_of(const doc::TaskGraph& graph, std::int32_t bucket);
  std::span<std::byte> bytes_of(const doc::TaskGraph& graph, std::int32_t payload);
  compress::Input input_of(Tensor& tensor, std::span<float> gradient) const;

  Payloads& payloads_;
  int rank_, ranks_;
  std::uint64_t seed_;
  std::shared_ptr<const doc::Plan> plan_;
  std::shared_ptr<const compress::Compressor> compressor_;
  std::string compressor_text_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;  // by parameter
  std::map<std::pair<const doc::TaskGraph*, std::int32_t>, std::unique_ptr<Bucket>> buckets_;
  CompressionState loaded_;  // what no step has taken up yet
  std::int64_t step_ = 0;    // steps that counted
  bool infinite_ = false;
};

}  // namespace linerate::exec
