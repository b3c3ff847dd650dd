// The job of whatif/forty_layers.hpp and its candidates, for tests of advise().
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "linerate/doc/advice.hpp"
#include "whatif/forty_layers.hpp"

namespace linerate::advise {

using whatif::cluster;
using whatif::kGbit;
using whatif::measured;
using whatif::workload;

inline const doc::Candidate& find(const doc::Advice& a, const std::string& strategy) {
  const auto found = std::find_if(a.candidates.begin(), a.candidates.end(),
                                  [&](const doc::Candidate& c) { return c.strategy == strategy; });
  if (found == a.candidates.end()) throw std::runtime_error("no candidate " + strategy);
  return *found;
}

}  // namespace linerate::advise
