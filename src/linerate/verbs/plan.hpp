// linerate plan: the tasks of a step, as the simulator and training both run them.
#pragma once

#include "linerate/verbs/caller.hpp"
#include "linerate/verbs/question_argument.hpp"
#include "linerate/whatif/answer.hpp"

namespace linerate::verbs {

struct PlanOptions {
  QuestionArgument question;
  bool training = false;
};

void add_options(CLI::App& verb, PlanOptions& options);
/// Throws UsageError, InputError.
whatif::Planned plan(const PlanOptions& options, const Caller& caller = {});

}  // namespace linerate::verbs
