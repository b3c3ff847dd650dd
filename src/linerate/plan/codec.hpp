// A generic compressor as the planner sees it: how much smaller, how fast, summable or gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"

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
};

// What coding costs: as the Cluster knows it, else as it was recorded or published for GPUs.

/// codec_costs.json as it stood when the build was configured. It has the launches and the passes
/// over bytes of each codec, and the times of devices for these.
extern const std::string_view kCodecCosts;

/// Its rows with the times of their devices; measured rows come first.
const std::vector<doc::CodecCost>& known_codec_costs();

/// The costs of linerate's own codecs on a device (launches that are counted, docs/launches.md; not
/// run on a GPU), in the order of the file.
const std::vector<doc::CodecCost>& own_codec_costs();

/// The Cluster with the known costs after its own, those of `whose` first. Without them if its
/// ranks compute on CPU cores, whose costs are others.
doc::Cluster with_known_codecs(doc::Cluster cluster, doc::CodecsOf whose = doc::CodecsOf::hooks);

/// A cost and whose it is: the row's name.
struct CodecPrice {
  doc::CodecCost cost;
  bool is_exact = true;  // of this component, not of its nearest setting or of any compressor
};
/// Prices coding by this compressor from these costs, in this order:
/// - The Cluster's own cost with these options, else by the name alone.
/// - The first known cost with these options, or for all of them.
/// - For ACP-SGD, half of PowerSGD's: one factor a step instead of two (Zhang et al. 2023, arXiv
///   2306.08881).
/// - The known cost of the nearest setting, by ratio.
/// - linerate's own codec, or the cost that any compressor has at least.
///
/// Absent: the Cluster has none of these.
std::optional<CodecPrice> price_of(const doc::Component& component,
                                   const std::vector<doc::CodecCost>& codecs);

/// Whether it is what any compressor costs at least, for lack of a row of its own.
bool is_bound_from_below(const doc::CodecCost& cost);

/// The source of a price that is not the Cluster's own; empty if it is.
std::string about(const CodecPrice& price, std::string_view name);

// What a bucket becomes on the wire.

// How gradients look on the wire. An example with ratio 8 and gather: 100 f32 elements are 400 B
// dense and a payload of 50 B. Among 4 ranks the all-gather's size is 4 * 50 = 200 B.
struct WireForm {
  std::optional<DType> wire;  // absent: the gradients' own type
  double ratio = 1;           // dense bytes / payload bytes
  bool gather = false;        // payloads cannot be summed: all-gather

  DType dtype(DType gradient) const { return wire.value_or(gradient); }
  /// True if the bucket itself travels.
  bool is_plain(DType gradient) const {
    return ratio == 1 && !gather && dtype(gradient) == gradient;
  }
  /// S of the collective, as core/dtype.hpp defines it: the all-gather's total grows with n.
  std::int64_t bytes(std::int64_t elements, DType gradient, int ranks) const {
    const std::int64_t dense = elements * size_of(dtype(gradient));
    if (ratio == 1 && !gather) return dense;
    const double one = static_cast<double>(dense) / ratio;
    const auto whole = static_cast<std::int64_t>(one);
    const std::int64_t payload = whole + (static_cast<double>(whole) < one);  // rounded up
    return gather ? payload * ranks : payload;
  }
};

}  // namespace linerate::plan
