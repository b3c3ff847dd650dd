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

/// Every exchange the planner knows with the options that matter, the 16-bit wire, and each codec
/// behind the current exchange and behind ddp, bulk, horovod, optimal and dear, where they can
/// carry it. The Cluster's codecs count where their name says how much smaller payloads are:
/// codec(ratio=8), or the name of a cast.
SearchSpace search_space(const doc::Strategy& current, const std::vector<doc::Component>& codecs,
                         const std::vector<doc::Strategy>& more, const doc::Cluster& cluster);

}  // namespace linerate::advise
