// linerate explain FILE...: where a step's time goes, and the verdict.
#include <cstdio>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/keep_memory.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::cli {

void setup_explain(CLI::App& app) {
  const auto [verb, a] = add_verb<Given<verbs::ExplainOptions>>(
      app, "explain", "Say where a step's time goes and what limits it.");
  verb->add_flag("--json", a->json, "Print JSON.");
  verb->callback([a = a] {
    keep_freed_memory();  // lists of events grow, and are freed, by the hundred thousand
    ProgressLine progress;
    const verbs::Explained explained = verbs::explain(a->options, progress.caller());
    progress.clear();
    const auto& [breakdown, verdict] = explained.explanation;
    const std::string text =
        a->json ? trace::explain_json(breakdown, verdict) : trace::explain_text(breakdown, verdict);
    std::fwrite(text.data(), 1, text.size(), stdout);
  });
}

}  // namespace linerate::cli
