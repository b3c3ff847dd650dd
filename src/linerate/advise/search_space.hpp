// Which strategies advice considers.
#pragma once

#include <string>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::advise {

struct SearchSpace {
  std::vector<doc::Strategy> strategies;  // the one in use first; no strategy twice
  std::vector<std::string> notes;         // what could not be considered, and why
};

/// "codec(ratio=8, encode=10GB/s, ...)". Throws UsageError.
doc::Component parse_codec(const std::string& text);

/// The strategies to try: every exchange of the planner's registry, plain and with the options that
/// its line names. Each codec is tried with the current exchange, and with those that the registry
/// lets it be tried with (plan::Candidates), if they can carry it. The Cluster's codecs count if
/// their name says how much smaller payloads are: codec(ratio=8), or the name of a cast. If the
/// Workload has no shapes, compressors that send factors of matrices are tried only if they are
/// asked for.
SearchSpace search_space(const doc::Strategy& current, const std::vector<doc::Component>& codecs,
                         const std::vector<doc::Strategy>& more, const doc::Cluster& cluster,
                         bool knows_shapes = true);

}  // namespace linerate::advise
