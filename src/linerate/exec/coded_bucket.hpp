// How a bucket of a Plan's variant is coded: its tensors, their compressor and their payloads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::exec {

/// What a bucket is coded into, in the order in which the Plan adds it: the payloads of its rounds,
/// then that of what travels dense.
std::vector<std::int32_t> encoded_payloads(const doc::TaskGraph& graph, std::int32_t bucket);

struct CodedBucket {
  compress::CodingStep step;  // without a round
  std::shared_ptr<const compress::Compressor> compressor;
  compress::TensorMethod method;  // of its tensors
  compress::BucketLayout layout;
  compress::TwoPhaseLayout chunks;              // of the two-phase exchange; else empty
  std::vector<compress::CodedTensor*> tensors;  // by part; null: it travels dense
  /// By round; if two-phase: what is sent, what arrives, what is gathered.
  std::vector<std::int32_t> payloads;
  std::int32_t counts = -1;  // how many bytes each rank sends, if the Plan knows only a bound
  std::int32_t dense = -1;   // of what travels dense, unless in the first round

  /// This step takes the two-phase exchange; in a phase that sums, its tensors only know of it.
  bool has_owners() const {
    return step.two_phase && layout.rounds.front().combine == compress::Combine::gather;
  }
};

/// The compressors of a Plan, made once, and what they code in each bucket.
class CodedBuckets {
 public:
  CodedBuckets(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  void set_plan(std::shared_ptr<const doc::Plan> plan);
  /// Call when the buckets' tensors are gone.
  void forget() { buckets_.clear(); }
  /// Which round an encode is.
  int round_of(const doc::Task& task) const { return rounds_[to_index(task.operation)]; }
  /// The bucket that a task codes. `tensor_of` owns its tensors, by name.
  CodedBucket& of(const doc::TaskGraph& graph, const doc::Task& task,
                  const std::function<compress::CodedTensor&(const std::string&,
                                                             const compress::Shape&)>& tensor_of);
  /// For what travels dense under the Plan's compressor; that is null if it has none or several.
  const compress::TensorMethod& dense_method() const { return dense_method_; }
  /// The phases of the Plan's compressor; one phase if it has none or several.
  const compress::Phases& phases() const { return phases_; }

 private:
  void set_compressor(const doc::Strategy& strategy);
  std::shared_ptr<const compress::Compressor> compressor_of(const doc::Component& component);
  CodedBucket make(const doc::TaskGraph& graph, const doc::Task& task,
                   const std::function<compress::CodedTensor&(const std::string&,
                                                              const compress::Shape&)>& tensor_of);

  int rank_, ranks_;
  std::shared_ptr<const doc::Plan> plan_;
  compress::TensorMethod dense_method_;
  compress::Phases phases_;
  std::vector<int> rounds_;  // by operation of the plan
  std::map<std::string, std::shared_ptr<const compress::Compressor>> compressors_;
  std::map<std::pair<const doc::TaskGraph*, std::int32_t>, CodedBucket> buckets_;
};

}  // namespace linerate::exec
