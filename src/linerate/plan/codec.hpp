// A generic compressor as the planner sees it: how much smaller, how fast, summable or gathered.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "linerate/core/dtype.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/task.hpp"

namespace linerate::plan {

/// What a codec sends and costs, as plans see it:
///   codec(ratio=8, encode=10GB/s, decode=12GB/s, exchange=sum|gather, on=codec|compute|alone,
///   name=...).
/// Rates count bytes of the dense gradient. An absent rate costs nothing, which gives the most that
/// such a compressor can gain.
struct CodecModel {
  doc::Component operation;  // how tasks name it
  bool is_cast = false;      // changes the element type alone
  double ratio = 1;          // dense bytes / payload bytes
  bool gather = false;       // payloads cannot be summed: all-gather, decode once for each rank
  doc::CodecCost cost;       // rates of 0: free
  std::string about_cost;    // of a cast: where else that is from; empty: the Cluster's own

  /// Throws UsageError; rates that are not given come from the Cluster's codec of that name.
  static CodecModel parse(const doc::Component& component, const doc::Cluster& cluster);
  /// A cast to the wire's type, free unless the Cluster has a codec "fp16" or "bf16".
  static CodecModel cast(DType wire, const doc::Cluster& cluster);
  /// What a Cluster calls the codec that prices this cast: "fp16".
  static std::string_view cast_name(DType wire);
  void set_ratio(double dense_over_payload);

  double encode_s(const doc::CodedTensors& dense) const { return cost.encode_s(dense); }
  /// For one payload.
  double decode_s(const doc::CodedTensors& dense) const { return cost.decode_s(dense); }
};

}  // namespace linerate::plan
