// A compressor of the registry as the planner sees it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/wire_form.hpp"

namespace linerate::plan {

struct Compression {
  doc::Component operation;  // how tasks name it: powersgd(rank=4)
  std::shared_ptr<const compress::Compressor> compressor;
  std::optional<doc::CodecCost> cost;  // the Cluster's, of that name; absent: free

  /// Throws UsageError for options that it does not have.
  static Compression parse(const doc::Component& component, const doc::Cluster& cluster);

  /// Of a round; its share of the method's encode.
  double encode_s(std::int64_t dense_bytes, std::size_t rounds) const {
    return cost ? cost->encode_s(dense_bytes) / static_cast<double>(rounds) : 0;
  }
  /// Of one payload.
  double decode_s(std::int64_t dense_bytes) const { return cost ? cost->decode_s(dense_bytes) : 0; }
  /// Without rounds where the bucket's type is not f32.
  compress::BucketLayout layout_of(const doc::Workload& workload, const doc::TaskGraph& graph,
                                   const doc::Payload& bucket) const;
  /// What buckets are cut by before they are there: the ratio over all gradients, and whether
  /// payloads are gathered.
  WireForm typical_form(const doc::Workload& workload) const;
};

/// Whether a compressor's payloads are one sum, which a decoupled exchange can split.
bool fits_decoupled(const doc::Component& compressor);

/// The scaling of gradients that stay in their own units: the mean is taken behind the decode.
doc::Component scale_in_gradient_units();
bool is_in_gradient_units(const doc::Component& operation);

}  // namespace linerate::plan
