// The job of whatif/forty_layers.hpp and its candidates, for tests of advise().
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "linerate/advise/advise_options.hpp"
#include "linerate/doc/advice.hpp"
#include "whatif/forty_layers.hpp"

namespace linerate::advise {

using whatif::cluster;
using whatif::kGbit;
using whatif::measured;
using whatif::workload;

inline AdviseOptions in_use(std::string_view strategy) {
  AdviseOptions options;
  options.current = doc::parse_strategy(strategy);
  return options;
}

/// Considers a codec, of which this is known (parse_steps_to_target()).
inline AdviseOptions with_codec(
    std::initializer_list<const char*> steps = {},
    const char* codec = "codec(ratio=32, encode=100GB/s, decode=100GB/s)") {
  AdviseOptions options;
  options.codecs = {doc::parse_strategy(codec).exchange};
  for (const char* known : steps) options.steps.push_back(parse_steps_to_target(known));
  return options;
}

inline const doc::Candidate& find(const doc::Advice& a, const std::string& strategy) {
  const auto found = std::find_if(a.candidates.begin(), a.candidates.end(),
                                  [&](const doc::Candidate& c) { return c.strategy == strategy; });
  if (found == a.candidates.end()) throw std::runtime_error("no candidate " + strategy);
  return *found;
}

}  // namespace linerate::advise
