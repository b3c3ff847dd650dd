// How a bucket of a Plan's variant is coded: its tensors, their compressor and their payloads.
//
// Compression (on the host) and StreamCompression (torch_adapter, on a device) share this.
// Residuals belong to parameters and layouts belong to buckets. So a CodedTensor is found by the
// parameter's name and lives as long as the run. A CodedBucketOf is found by the variant's graph
// and the bucket, and is made anew for each Plan. If a new Plan puts a parameter into another
// bucket, the tensor and its residual go along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

/// The payloads that a bucket is coded into, in the order in which the Plan adds them. First come
/// those of its rounds, then the payload of gradients that travel dense.
std::vector<std::int32_t> encoded_payloads(const doc::TaskGraph& graph, std::int32_t bucket);

/// How a bucket is coded, without the tensors themselves.
struct CodingOfBucket {
  const doc::TaskGraph* graph = nullptr;  // of the variant
  std::int32_t bucket = -1;               // the payload of the graph that is coded
  compress::CodingStep step;              // without a round
  std::shared_ptr<const compress::Compressor> compressor;
  compress::TensorMethod method;  // of its tensors
  compress::BucketLayout layout;
  compress::TwoPhaseLayout chunks;        // of the two-phase exchange; else empty
  std::vector<const std::string*> names;  // by part: the parameter's
  /// By round; if two-phase: what is sent, what arrives, what is gathered.
  std::vector<std::int32_t> payloads;
  std::int32_t counts = -1;  // how many bytes each rank sends, if the Plan knows only a bound
  std::int32_t dense = -1;   // of what travels dense, unless in the first round

  /// Whether this step takes the two-phase exchange. In a phase that sums, tensors of such a
  /// compressor are told of the exchange but do not use it.
  bool has_owners() const {
    return step.two_phase && layout.rounds.front().combine == compress::Combine::gather;
  }
};

/// `Tensor` codes a parameter: CodedTensor on the host, CodedParameter (torch_codecs) on a device.
template <typename Tensor>
struct CodedBucketOf : CodingOfBucket {
  std::vector<Tensor*> tensors;  // by part; null: it travels dense

  /// Calls visit(tensor, part) for each part that is coded.
  template <typename Visit>
  void for_each_coded(const Visit& visit) const {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i]) visit(*tensors[i], layout.parts[i]);
  }
};

/// The two-phase exchange of its tensors, which have begun a step, over their back end.
template <class Ops, typename Tensor>
compress::TwoPhaseExchange<Ops> two_phase_exchange_of(const CodedBucketOf<Tensor>& bucket) {
  compress::TwoPhaseExchange<Ops> exchange(bucket.method, bucket.layout, bucket.chunks);
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i)
    if (Tensor* const tensor = bucket.tensors[i])
      exchange.add(i, tensor->two_phase(), tensor->keys(), tensor->name());
  return exchange;
}

/// The compressors of a Plan, made once, and how they code each bucket.
class BucketCodings {
 public:
  using MakeCompressor =
      std::function<std::shared_ptr<const compress::Compressor>(const doc::Component&)>;

  /// Compressors are `make`'s.
  BucketCodings(int rank, int ranks, MakeCompressor make);

  void set_plan(std::shared_ptr<const doc::Plan> plan);
  /// Whether a compressor does the work of this task.
  bool is_coding(const doc::Task& task) const { return doc::is_coding(*plan_, task); }
  /// The round that an encode task encodes, from 0.
  int round_of(const doc::Task& task) const { return rounds_[to_index(task.operation)]; }
  /// The method of gradients that travel dense under the Plan's compressor. Its compressor is null
  /// if the Plan has none or several.
  const compress::TensorMethod& dense_method() const { return dense_method_; }
  /// Whether the Plan's compressor turns means that travel dense into something else for the
  /// optimizer, as onebit-adam does (Compressor::of_dense).
  bool sees_dense_means() const;

  /// The names of the Plan's parameters, by position.
  const std::vector<std::string>& names() const { return plan_->gradient_names; }
  /// How the bucket that a task codes is coded.
  CodingOfBucket make(const doc::TaskGraph& graph, const doc::Task& task);
  /// The phase of the Plan's compressor in its n-th step. Empty if the compressor has one phase, or
  /// if the Plan has no compressor or several.
  std::string phase_of(std::int64_t step) const;

 private:
  void set_compressor(const doc::Strategy& strategy);
  std::shared_ptr<const compress::Compressor> compressor_of(const doc::Component& component);

  int rank_, ranks_;
  MakeCompressor make_;
  std::shared_ptr<const doc::Plan> plan_;
  compress::TensorMethod dense_method_;
  compress::Phases phases_;
  std::vector<int> rounds_;  // by operation of the plan
  std::map<std::string, std::shared_ptr<const compress::Compressor>> compressors_;
};

// Memory for payloads whose content is never read: one array for all of them.

/// Zeros, as many as the Plan's largest payload holds.
///
/// A communicator runs the collectives of a rank one after the other, in the order of submission.
/// It touches the memory of a collective only while that collective runs. So all payloads can share
/// one array, also those that are queued and those of steps that are open at once. An all-to-all
/// reads one payload and writes another, so results of all-to-alls have a second array. Sums of
/// zeros stay zeros, so no value overflows however often the array is reduced.
class PayloadArena : public Payloads {
 public:
  explicit PayloadArena(std::shared_ptr<const doc::Plan> plan);

  comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override;
  std::shared_ptr<const void> hold(const doc::TaskGraph&, std::int32_t) override { return memory_; }
  /// Parts as equal as they can be, the first ones larger.
  std::vector<std::int64_t> counts(const doc::TaskGraph& graph, const doc::Task& task) override;

  std::int64_t bytes() const { return first_bytes_ + second_bytes_; }

 private:
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<std::vector<bool>> is_second_;  // [variants][payloads]
  std::int64_t first_bytes_ = 0, second_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
};

/// `bytes` zeros at an address that stays, in large pages if the system has them.
std::shared_ptr<std::byte> zeros(std::int64_t bytes);

}  // namespace linerate::exec
