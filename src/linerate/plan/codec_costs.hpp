// What coding costs: as the Cluster knows it, else as it was recorded or published for GPUs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::plan {

/// codec_costs.json as it stood when the build was configured. It has the launches and the passes
/// over bytes of each codec, and the times of devices for these.
extern const std::string_view kCodecCosts;

/// Its rows with the times of their devices; measured rows come first.
const std::vector<doc::CodecCost>& known_codec_costs();

/// The costs of linerate's own codecs on a device (launches that docs/launches.md counts, not run
/// on a GPU), in the order of the file.
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

}  // namespace linerate::plan
