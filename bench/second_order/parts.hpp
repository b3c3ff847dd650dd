// What a step with K-FAC is made of, from recorded Timelines.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"

namespace linerate::bench {

/// Seconds of one rank's step: each moment in one part alone. What no part's task covers, waiting
/// for communication most of it, is the rest.
struct Parts {
  double step = 0, pass = 0, factors = 0, inverses = 0, precondition = 0, rest = 0;
};

/// Of every step, by its variant's kind of update ("" where the Plan has one): the mean over ranks.
using PartsOfSteps = std::map<std::string, std::vector<Parts>>;
void add_steps(const doc::Timeline& timeline, PartsOfSteps& steps);

/// The step whose duration is the median.
Parts median_step(std::vector<Parts> steps);

/// Of a schedule in which a step of each kind comes with this weight.
Parts weighted(const std::vector<std::pair<double, Parts>>& kinds);

}  // namespace linerate::bench
