// Compressors of the registry as the planner sees them: which one codes a bucket, and how its
// payloads travel.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/coding_step.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {

struct PassInput;

/// A compressor, and what it costs here.
struct Method {
  doc::Component component;  // powersgd(rank=4, dense_below=4096), as operations name it
  std::shared_ptr<const compress::Compressor> compressor;
  std::optional<doc::CodecCost> cost;  // price_of() it; absent: free
  std::string about_cost = {};         // where else that is from; empty: the Cluster's own

  /// Of a strategy's component. Throws UsageError for options that it does not have.
  static Method parse(const doc::Component& component, const doc::Cluster& cluster);

  double encode_s(const doc::CodedTensors& dense) const { return cost ? cost->encode_s(dense) : 0; }
  /// For one payload.
  double decode_s(const doc::CodedTensors& dense) const { return cost ? cost->decode_s(dense) : 0; }
};

/// How a bucket is coded.
struct BucketCoding {
  const Method* method = nullptr;   // null: it travels dense
  compress::BucketLayout layout;    // without rounds then
  compress::TwoPhaseLayout chunks;  // of the two-phase exchange
  bool two_phase = false;

  bool is_coded() const { return layout.is_coded(); }
  /// Of the tensors that do not travel dense.
  doc::CodedTensors coded() const;
  /// An owner's part of them.
  doc::CodedTensors part_of(int ranks) const;
  /// Whether this step takes two phases: not in a phase that sums whole tensors.
  bool has_owners() const { return two_phase && chunks.block_bytes > 0; }
};

/// A sentence on the gradients that compressors leave dense because they are not f32, with the
/// bytes that they send; empty if there are none. `name`: of a compressor, or auto.
std::string left_dense(std::string_view name, const doc::Workload& workload);
/// The same for the strategy's compressor; empty too if it has none.
std::string left_dense(const doc::Strategy& strategy, const doc::Workload& workload);

/// What a strategy asks of the optimizer, and which of its compressors asks.
struct AskedOfOptimizer {
  std::string compressor;  // its name; empty: none asks for anything
  compress::Momentum momentum = compress::Momentum::optimizers;
};
AskedOfOptimizer asked_of_optimizer(const doc::Strategy& strategy);

/// Why an optimizer does not fit, and what to write instead, in words.
struct OptimizerFit {
  std::string refused;   // the steps would be wrong
  std::string doubtful;  // they are other ones than were asked for
};
OptimizerFit fit_of(const AskedOfOptimizer& asked, compress::StepsBy optimizer);

/// What a strategy says after '+'. It is a compressor, with exchange=auto|gather|two-phase for
/// payloads that are gathered. Or it is auto(...), which compresses a bucket only if calibrated
/// encode, transfer and decode beat the dense exchange. auto takes the best of the compressors that
/// it names, by default all that the Cluster has calibrated: auto(powersgd(rank=4)), auto(topk,
/// density=0.01).
class CompressionModel {
 public:
  /// Throws UsageError.
  static CompressionModel parse(const doc::Component& component, const doc::Cluster& cluster);

  BucketCoding coding_of(const PassInput& input, const doc::TaskGraph& graph,
                         const doc::Payload& bucket) const;
  /// One phase if there are several compressors.
  const compress::Phases& phases() const { return phases_; }
  const std::vector<Method>& methods() const { return methods_; }
  /// As the strategy names it.
  const std::string& name() const { return name_; }
  /// All gradients that the first method codes, as if they lay in one bucket.
  doc::CodedTensors coded(const doc::Workload& workload) const;
  /// What cuts gradients into buckets: the first method's ratio over all gradients, and whether its
  /// payloads are gathered. Throws UsageError if a method depends on shapes and none are known.
  WireForm typical_form(const doc::Workload& workload) const;

 private:
  enum class Way { cheapest, gather, two_phase };

  void read_auto(const doc::Component& component, const doc::Cluster& cluster);
  void require_shapes(const doc::Workload& workload) const;
  BucketCoding coded_by(const Method& method, const PassInput& input,
                        std::span<const compress::Shape> shapes) const;
  double seconds_of(const BucketCoding& coding, const PassInput& input) const;

  std::string name_;
  std::vector<Method> methods_;
  bool dense_where_cheaper_ = false;
  Way way_ = Way::cheapest;
  compress::Phases phases_;
};

/// Whether a compressor of the strategy depends on which gradients are matrices, so that a Workload
/// without shapes is refused. Throws UsageError.
bool needs_shapes(const doc::Strategy& strategy, const doc::Cluster& cluster);

/// The compressors that a component after '+' names: itself, or those of auto(...). Throws
/// UsageError.
std::vector<doc::Component> compressors_in(const doc::Component& component);

/// Whether a compressor's payloads are one sum, which a decoupled exchange can split.
bool fits_decoupled(const doc::Component& compressor);

/// The scaling of gradients that stay in their own units: the mean is taken after the decode.
doc::Component scale_in_gradient_units();
bool is_in_gradient_units(const doc::Component& operation);

}  // namespace linerate::plan
