// What compressors cost on this machine: encode and decode of one tensor, on the calling thread.
#pragma once

#include <string>
#include <vector>

#include "linerate/core/duration.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::calibrate {

struct CodecProbeOptions {
  std::vector<std::int64_t> elements = {1 << 12, 1 << 16, 1 << 20, 1 << 23};  // of square matrices
  Duration budget_per_size{0.1};                                              // at least one call
};

/// Fixed time and rate (bytes of the dense f32 tensor) of all rounds of an encode as training does
/// it (search for infinities, residual, copies of what the step may undo), and of decoding one
/// rank's payload; tensors come from memory, not from caches; fitted with relative weights to
/// medians over `elements`. Named by the component's text, as Plan and Cluster find it:
/// topk(density=0.01). Throws UsageError for compressors that do not exist.
doc::CodecCost probe_codec(const doc::Component& compressor, const CodecProbeOptions& options = {});

/// "powersgd(rank=4)". Throws UsageError for what is no compressor.
doc::Component parse_compressor(const std::string& text);
/// Every compressor of the registry, with its own options.
std::vector<doc::Component> all_compressors();
/// Probes each and puts it into the Cluster, in place of one of its name.
void add_codecs(doc::Cluster& cluster, const std::vector<doc::Component>& compressors);

}  // namespace linerate::calibrate
