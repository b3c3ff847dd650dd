// What the closed model of Agarwal et al. 2021 (arXiv 2103.00543) is asked with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/core/units.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::whatif {

/// What that model needs besides the network.
struct AgarwalOptions {
  double gamma = 1.07;    // slowdown of backward under overlap
  double epsilon = 0.05;  // how much slower than backward alone still counts as scaling
};

// What would another strategy, rank count, bandwidth or compression ratio do?

/// Whose model answers.
enum class Preset {
  none,        // the full simulator over the Cluster
  zhang2020,   // ring without latency, AddEst on the dense size, encoding free (arXiv 2006.10103)
  agarwal2021  // that paper's closed model (arXiv 2103.00543); cost/closed_form.hpp
};

/// Empty lists take what the Cluster, the strategy or the preset says.
struct Question {
  Preset preset = Preset::none;            // whose model answers
  std::vector<doc::Strategy> strategies;   // one prediction each
  std::vector<int> ranks;                  // of the job
  std::vector<BytesPerSecond> bandwidths;  // of the network, per direction
  std::vector<double> compression_ratios;  // dense bytes over sent bytes, apart from the strategy's
  std::optional<Seconds> latency;          // of the network, per message step
  std::string all_reduce{cost::kRingOrTree};  // if nothing was measured; presets take the ring
  AgarwalOptions agarwal;                     // of that preset
  std::optional<doc::CodecsOf> codecs;        // absent: hooks; of that preset papers
};

}  // namespace linerate::whatif
