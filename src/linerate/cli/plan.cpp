// linerate plan -w workload.json --bandwidth 10Gbit/s --ranks 4 --strategy dear: the tasks of a
// step, as the simulator and training both run them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/option_value.hpp"
#include "linerate/cli/question_argument.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/log.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/report/plan_dot.hpp"
#include "linerate/report/plan_text.hpp"

namespace linerate::cli {
namespace {

struct PlanOptions {
  QuestionArgument question;
  std::string output;
  bool training = false, json = false, dot = false;
};

void print_text(const whatif::Planned& planned) {
  fmt::print("{}", report::text_of(planned.plan, [&](const doc::Task& task) {
               return whatif::seconds_of(planned, task);
             }));
}

void run_plan(const PlanOptions& o) {
  if (o.json && o.dot) throw UsageError("--json and --dot exclude each other; give one of them");
  refuse_input_as_output("--output", o.output, o.question.inputs());
  const whatif::Question question = question_of(o.question);
  const doc::Workload workload = read_workload(o.question.workload);
  const doc::Cluster cluster = read_cluster(o.question, question);
  const whatif::Planned planned = whatif::plan_one(workload, cluster, question, o.training);
  if (!o.output.empty()) doc::save(planned.plan, o.output);
  for (const std::string& note : planned.notes) log::warning(note);
  if (o.json)
    fmt::print("{}", doc::to_json(planned.plan));
  else if (o.dot)
    fmt::print("{}", report::to_dot(planned.plan));
  else
    print_text(planned);
}

}  // namespace

void setup_plan(CLI::App& app) {
  const auto o = std::make_shared<PlanOptions>();
  CLI::App* verb = app.add_subcommand("plan", "Show the tasks of a step: the Plan of a strategy.");
  add_question_options(*verb, o->question);
  const auto describe = [verb](const char* option, const char* text) {
    verb->get_option(option)->description(text);
  };
  describe("--preset", "Plan under a paper's model: zhang2020.");
  describe("--strategy", "One, such as ddp or dear+codec(ratio=8).");
  describe("--ranks", "Ranks of the job; absent: the Cluster's.");
  describe("--bandwidth", "Of the network, per direction: 10Gbit/s; absent: the Cluster's.");
  describe("--compression-ratio", "Payloads so many times smaller, encoding free: 8.");
  verb->add_flag("--training", o->training,
                 "What linerate train runs: with scaling, flags of used parameters, buffers.");
  verb->add_option("-o,--output", o->output, "Save the Plan.");
  verb->add_flag("--json", o->json, "Print the Plan as JSON.");
  verb->add_flag("--dot", o->dot, "Print a graph for GraphViz: ... --dot | dot -Tsvg.");
  verb->callback([o] { run_plan(*o); });
}

}  // namespace linerate::cli
