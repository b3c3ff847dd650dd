// linerate explain FILE...: where a step's time goes, and the verdict.
#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/keep_memory.hpp"
#include "linerate/explain/explanation.hpp"

namespace linerate::cli {

void setup_explain(CLI::App& app) {
  struct Arguments {
    verbs::ExplainOptions options;
    bool json = false;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* verb =
      app.add_subcommand("explain", "Say where a step's time goes and what limits it.");
  verbs::add_options(*verb, a->options);
  verb->add_flag("--json", a->json, "Print JSON.");
  verb->callback([a] {
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
