// linerate compare: the error of a prediction, task kind by task kind, next to the noise.
#pragma once

#include <optional>
#include <string>

#include "linerate/compare/comparison.hpp"
#include "linerate/verbs/caller.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct CompareOptions {
  std::string predicted, measured, noise;
  std::optional<int> warm_up;
};

void add_options(CLI::App& verb, CompareOptions& options);
/// Throws InputError.
compare::Comparison compare(const CompareOptions& options, const Caller& caller = {});

}  // namespace linerate::verbs
