// Which strategies advice considers.
#pragma once

#include <string>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::advise {

struct SearchSpace {
  std::vector<doc::Strategy> strategies;  // the one in use first; no strategy twice
  std::vector<std::string> notes;         // what could not be considered, and why
};

/// Adds a text unless it is there.
void add_once(std::vector<std::string>& texts, std::string text);

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

// What an exchange keeps in memory on each rank.

/// Bytes at the peak of a step beyond parameters, activations and optimizer state.
struct MemoryNeed {
  double buckets = 0;       // all of them: the gradients live in them
  double payloads = 0;      // encoded or cast copies of buckets, and what is sent with them
  double error_memory = 0;  // what codecs and compressors carry into the next step
  // K-FAC, on the rank that keeps most. Statistics of a step and inverses are whole matrices,
  // running averages are triangles. What is sent of them counts too. kfac(d), (mpd) and (spd) keep
  // all on every rank. (mem) and (hybrid) keep the inverses of a rank's or a column's layers, and
  // (dp) keeps all of a layer on its owner alone (Pauloski et al. 2021; Zhang et al. 2022).
  double factors = 0;

  double total() const { return buckets + payloads + error_memory + factors; }
};

/// The largest over the variants of the plan; what K-FAC keeps counts in all of them.
MemoryNeed memory_of(const doc::Plan& plan);

}  // namespace linerate::advise
