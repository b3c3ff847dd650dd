// linerate whatif -w workload.json -c cluster.json --ranks ... --bandwidth ... --strategy ...:
// the predicted step of every combination.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "linerate/cli/command_line.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/question_argument.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/cli/whatif_collective.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/prediction_text.hpp"
#include "linerate/version.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::cli {
namespace {

struct WhatifOptions {
  QuestionArgument question;
  std::string timeline, plan, html;
  std::optional<double> gamma, epsilon;
  bool csv = false, json = false, plot = false;
};

whatif::Question question_of(const WhatifOptions& o) {
  // Options that only one preset reads are refused for others.
  if (o.question.preset != "agarwal2021" && (o.gamma || o.epsilon))
    throw UsageError("--gamma and --epsilon belong to --preset agarwal2021");
  whatif::Question q = question_of(o.question);
  if (o.gamma) q.agarwal.gamma = *o.gamma;
  if (o.epsilon) q.agarwal.epsilon = *o.epsilon;
  return q;
}

void save_documents(const WhatifOptions& o, const doc::Workload& workload,
                    const doc::Cluster& cluster, const whatif::Question& question) {
  if (o.timeline.empty() && o.plan.empty()) return;
  const whatif::Planned planned = whatif::plan_one(workload, cluster, question);
  if (!o.plan.empty()) doc::save(planned.plan, o.plan);
  if (!o.timeline.empty()) doc::save(whatif::timeline_of(planned, workload), o.timeline);
}

void save_page(const WhatifOptions& o, const doc::Predictions& answer,
               const doc::Workload& workload, const doc::Cluster& cluster,
               const whatif::Question& question, const std::string& command) {
  report::Inputs inputs;
  inputs.title = "What if";
  for (const std::string& file : o.question.inputs())
    if (!file.empty()) inputs.files.push_back(file);
  inputs.predictions = {{"", answer}};
  if (auto first = whatif::first_timeline(workload, cluster, question))
    inputs.timelines.push_back({first->strategy, first->strategy, std::move(*first)});
  report::save_page(inputs, command, std::string(kVersion), o.html);
}

// POSIX: the first of these that is set and not empty decides.
std::string locale_name() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) return value;
  return "";
}

void run_whatif(const WhatifOptions& o, const std::string& command) {
  if (o.csv + o.json + o.plot > 1)
    throw UsageError("--csv, --json and --plot exclude each other; give one of them");
  const std::vector<std::string> inputs = o.question.inputs();
  refuse_input_as_output("--html", o.html, inputs);
  refuse_input_as_output("--timeline", o.timeline, inputs);
  refuse_input_as_output("--plan", o.plan, inputs);
  const whatif::Question question = question_of(o);
  const doc::Workload workload = read_workload(o.question.workload);
  const doc::Cluster cluster = read_cluster(o.question, question);
  const doc::Predictions answer = whatif::ask(workload, cluster, question);
  save_documents(o, workload, cluster, question);
  if (!o.html.empty()) save_page(o, answer, workload, cluster, question, command);
  fmt::print("{}", o.json  ? doc::to_json(answer)
                   : o.csv ? report::to_csv(answer)
                           : report::to_text(answer));
  if (o.plot) fmt::print("{}", report::to_curves(answer, locale_name()));
  // CSV has no place for them.
  if (o.csv)
    for (const std::string& note : answer.notes) log::warning(note);
}

}  // namespace

void setup_whatif(CLI::App& app) {
  const auto o = std::make_shared<WhatifOptions>();
  CLI::App* verb =
      app.add_subcommand("whatif", "Ask what another strategy, rank count or network would do.");
  add_question_options(*verb, o->question);
  verb->add_option("--gamma", o->gamma,
                   "agarwal2021: slowdown of backward under overlap; absent: 1.07.")
      ->check(CLI::Range(1.0, 10.0));
  verb->add_option("--epsilon", o->epsilon,
                   "agarwal2021: tolerated loss against backward alone; absent: 0.05.")
      ->check(CLI::Range(1e-6, 10.0));
  verb->add_option("--timeline", o->timeline, "Save the predicted Timeline of one combination.");
  verb->add_option("--plan", o->plan, "Save the Plan of one combination.");
  verb->add_option("--html", o->html, "Write a page with charts, too.");
  verb->add_flag("--plot", o->plot, "Draw the scaling factor over bandwidth in the terminal.");
  verb->add_flag("--csv", o->csv, "Print the predictions as CSV.");
  verb->add_flag("--json", o->json, "Print the predictions as JSON.");
  setup_whatif_collectives(*verb);
  verb->callback([o, verb] {
    if (verb->get_subcommands().empty()) run_whatif(*o, command_line(*verb));
  });
}

}  // namespace linerate::cli
