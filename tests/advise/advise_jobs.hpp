// The job of whatif/forty_layers.hpp and its candidates, for tests of advise().
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "linerate/advise/advise.hpp"
#include "support/says.hpp"
#include "whatif/forty_layers.hpp"

namespace linerate::advise {

using whatif::cluster;
using whatif::kGbit;
using whatif::measured;
using whatif::workload;

inline doc::Advice advised(const doc::Cluster& c, const AdviseOptions& options = {}) {
  return advise(workload(), c, options);
}

inline AdviseOptions in_use(std::string_view strategy) {
  return {.current = doc::parse_strategy(strategy)};
}

/// Considers a codec, of which this is known (parse_steps_to_target()).
inline AdviseOptions with_codec(
    std::initializer_list<const char*> steps = {},
    const char* codec = "codec(ratio=32, encode=100GB/s, decode=100GB/s)") {
  AdviseOptions options{.codecs = {doc::parse_strategy(codec).exchange}};
  for (const char* known : steps) options.steps.push_back(parse_steps_to_target(known));
  return options;
}

inline const doc::Candidate& find(const doc::Advice& a, const std::string& strategy) {
  for (const doc::Candidate& c : a.candidates)
    if (c.strategy == strategy) return c;
  throw std::runtime_error("no candidate " + strategy);
}

}  // namespace linerate::advise
