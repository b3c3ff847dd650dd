// linerate whatif -w workload.json -c cluster.json --ranks ... --bandwidth ... --strategy ...:
// the predicted step of every combination.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/advise/question.hpp"
#include "linerate/cli/breakdown_table.hpp"
#include "linerate/cli/command_line.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/question_argument.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/cli/whatif_collective.hpp"
#include "linerate/cli/whatif_pictures.hpp"
#include "linerate/cli/whatif_print.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/sim/predicted_timeline.hpp"

namespace linerate::cli {
namespace {

struct WhatifOptions {
  QuestionArgument question;
  std::string timeline, plan, html;
  std::optional<double> gamma, epsilon;
  bool csv = false, json = false, plot = false;
};

advise::Question question_of(const WhatifOptions& o) {
  // What only one preset reads must not be given in vain.
  if (o.question.preset != "agarwal2021" && (o.gamma || o.epsilon))
    throw UsageError("--gamma and --epsilon belong to --preset agarwal2021");
  advise::Question q = question_of(o.question);
  if (o.gamma) q.gamma = *o.gamma;
  if (o.epsilon) q.epsilon = *o.epsilon;
  return q;
}

void save_documents(const WhatifOptions& o, const doc::Workload& workload,
                    const doc::Cluster& cluster, const advise::Question& question) {
  if (o.timeline.empty() && o.plan.empty()) return;
  const advise::Planned planned = advise::plan_one(workload, cluster, question);
  if (!o.plan.empty()) doc::save(planned.plan, o.plan);
  if (!o.timeline.empty())
    doc::save(sim::predicted_timeline(planned.plan, workload, planned.model), o.timeline);
}

constexpr int kMostRanksDrawn = 4096;  // a Timeline holds the events of every rank

// The page's timeline: of the first combination asked about. None for a closed formula.
std::vector<report::NamedTimeline> timeline_of_first(const doc::Workload& workload,
                                                     const doc::Cluster& cluster,
                                                     advise::Question question) {
  if (question.preset == advise::Preset::agarwal2021) return {};
  const auto keep_first = [](auto& list) {
    if (list.size() > 1) list.resize(1, list.front());
  };
  keep_first(question.strategies), keep_first(question.ranks);
  keep_first(question.bandwidths), keep_first(question.compression_ratios);
  const advise::Planned planned = advise::plan_one(workload, cluster, question);
  if (planned.plan.ranks > kMostRanksDrawn) return {};
  report::NamedTimeline t;
  t.timeline = sim::predicted_timeline(planned.plan, workload, planned.model);
  t.file = planned.plan.strategy;
  t.breakdown = breakdown_table(t.timeline, t.file);
  if (const double line = planned.model.network_bytes_per_s(); line > 0)
    t.file += " at " + format_bit_rate(line);
  t.timeline.notes = {"the first combination asked about"};
  return {std::move(t)};
}

void run_whatif(const WhatifOptions& o, const std::string& command) {
  if (o.csv + o.json + o.plot > 1)
    throw UsageError("--csv, --json and --plot exclude each other; give one of them");
  const std::vector<std::string> inputs = o.question.inputs();
  keep_inputs("--html", o.html, inputs);
  keep_inputs("--timeline", o.timeline, inputs);
  keep_inputs("--plan", o.plan, inputs);
  const advise::Question question = question_of(o);
  const doc::Workload workload = read_workload(o.question.workload);
  const doc::Cluster cluster = read_cluster(o.question, question);
  const advise::Answer answer = advise::ask(workload, cluster, question);
  save_documents(o, workload, cluster, question);
  if (!o.html.empty())
    write_whatif_page(answer, timeline_of_first(workload, cluster, question), o.html, command,
                      inputs);
  if (o.json)
    print_json(answer, question.preset);
  else if (o.csv)
    print_csv(answer, question.preset);
  else
    print_table(answer, question, workload);
  if (o.plot) print_curves(answer);
  if (o.json || o.csv)
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
