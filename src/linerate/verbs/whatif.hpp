// linerate whatif: the predicted step of every combination.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "linerate/report/inputs.hpp"
#include "linerate/verbs/caller.hpp"
#include "linerate/verbs/question_argument.hpp"
#include "linerate/whatif/answer.hpp"

namespace linerate::verbs {

struct WhatifOptions {
  QuestionArgument question;
  std::optional<double> gamma, epsilon;
};

void add_options(CLI::App& verb, WhatifOptions& options);

/// What is asked of a Workload and a Cluster. Reads no file. Throws UsageError.
whatif::Question question_of(const WhatifOptions& options);

/// The answer, and what it was found with. Of an answer that was read from a file that is not
/// known: `workload` and `cluster` are null.
struct Asked {
  std::shared_ptr<const doc::Workload> workload;
  std::shared_ptr<const doc::Cluster> cluster;
  whatif::Question question;
  doc::Predictions answer;
};

/// Throws UsageError, InputError.
Asked whatif(const WhatifOptions& options, const Caller& caller = {});

/// Of one of its predictions. Throws UsageError for a closed formula and for an answer that was
/// read from a file, which have neither.
whatif::Planned plan_of(const Asked& asked, std::size_t prediction);
doc::Timeline timeline_of(const Asked& asked, std::size_t prediction);

/// What a page of it shows: the answer, and the Timeline of its first combination if it has one.
report::Inputs page_of(const Asked& asked);

}  // namespace linerate::verbs
