// linerate compare predicted.json measured.json: the error of a prediction, task kind by task kind,
// next to the noise.
#include <fmt/format.h>

#include "linerate/cli/verb.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::cli {

void setup_compare(CLI::App& app) {
  const auto [verb, a] = add_verb<Given<verbs::CompareOptions>>(
      app, "compare", "Compare a predicted and a measured Timeline.");
  verb->add_flag("--tasks", a->all, "List every task that has a partner.");
  verb->add_flag("--json", a->json, "Print everything as JSON.");
  verb->callback([a = a] {
    const compare::Comparison comparison = verbs::compare(a->options);
    if (a->json)
      fmt::print("{}\n", compare::to_json(comparison));
    else
      fmt::print("{}", compare::to_text(comparison, a->all));
  });
}

}  // namespace linerate::cli
