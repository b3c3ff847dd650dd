// linerate advise -w workload.json -c cluster.json --ranks 16: what to do about the network.
#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {

void setup_advise(CLI::App& app) {
  const auto [verb, a] = add_verb<Given<verbs::AdviseOptions>>(
      app, "advise", "Rank strategies for a job and a network, and say whether a change pays.");
  verb->add_option("--html", a->html, "Also write the advice as an HTML page.");
  verb->add_flag("--all", a->all,
                 "List every setting that was tried, not only the best of each exchange.");
  verb->add_flag("--json", a->json, "Print the advice as JSON.");
  verb->callback([a = a, verb = verb] {
    // Where the page goes is checked first: advice may take a while.
    const std::string &workload = a->options.workload.source.reference,
                      &cluster = a->options.network.cluster;
    verbs::refuse_input_as_output("--html", a->html, {workload, cluster});
    ProgressLine progress;
    const doc::Advice advice = verbs::advise(a->options, progress.caller());
    progress.clear();
    if (!a->html.empty()) {
      report::Inputs inputs;  // the page says what it was made from
      inputs.files = {workload};
      if (!cluster.empty()) inputs.files.push_back(cluster);
      inputs.advice = {advice};
      report::save_page(inputs, verbs::command_line(*verb), std::string(kVersion), a->html);
    }
    fmt::print("{}", a->json ? doc::to_json(advice) : report::to_text(advice, a->all));
  });
}

}  // namespace linerate::cli
