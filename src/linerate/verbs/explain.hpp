// linerate explain: where a step's time goes, and the verdict.
#pragma once

#include <string>
#include <vector>

#include "linerate/trace/explain/explanation.hpp"
#include "linerate/trace/job/job.hpp"
#include "linerate/verbs/caller.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct ExplainOptions {
  std::vector<std::string> files, alone;
  trace::Thresholds thresholds;
};

void add_options(CLI::App& verb, ExplainOptions& options);

struct Explained {
  std::string source;  // the first file
  trace::Job job;
  trace::Explanation explanation;
};

/// Throws InputError, UsageError.
Explained explain(const ExplainOptions& options, const Caller& caller = {});
/// The Timeline of its traces.
doc::Timeline timeline_of(const Explained& explained);

}  // namespace linerate::verbs
