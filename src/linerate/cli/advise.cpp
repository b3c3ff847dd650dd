// linerate advise -w workload.json -c cluster.json --ranks 16: what to do about the network.
#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {
namespace {

struct AdviseArguments {
  verbs::AdviseOptions options;
  std::string html;
  bool all = false, json = false;
};

// The page says which Workload and Cluster it was made from.
void save_page(const AdviseArguments& a, const doc::Advice& advice, const std::string& command) {
  report::Inputs inputs;
  inputs.files = {a.options.workload.source.reference};
  if (const std::string& cluster = a.options.network.cluster; !cluster.empty())
    inputs.files.push_back(cluster);
  inputs.advice = {advice};
  report::save_page(inputs, command, std::string(kVersion), a.html);
}

// Where the page goes is checked first: advice may take a while.
void run_advise(const AdviseArguments& a, const std::string& command) {
  verbs::refuse_input_as_output("--html", a.html,
                                {a.options.workload.source.reference, a.options.network.cluster});
  ProgressLine progress;
  const doc::Advice advice = verbs::advise(a.options, progress.caller());
  progress.clear();
  if (!a.html.empty()) save_page(a, advice, command);
  fmt::print("{}", a.json ? doc::to_json(advice) : report::to_text(advice, a.all));
}

}  // namespace

void setup_advise(CLI::App& app) {
  const auto a = std::make_shared<AdviseArguments>();
  CLI::App* verb = app.add_subcommand(
      "advise", "Rank strategies for a job and a network, and say whether a change pays.");
  verbs::add_options(*verb, a->options);
  verb->add_option("--html", a->html, "Also write the advice as an HTML page.");
  verb->add_flag("--all", a->all,
                 "List every setting that was tried, not only the best of each exchange.");
  verb->add_flag("--json", a->json, "Print the advice as JSON.");
  verb->callback([a, verb] { run_advise(*a, verbs::command_line(*verb)); });
}

}  // namespace linerate::cli
