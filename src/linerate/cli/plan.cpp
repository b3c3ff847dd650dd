// linerate plan -w workload.json --bandwidth 10Gbit/s --ranks 4 --strategy dear: the tasks of a
// step, as the simulator and training both run them.
#include "linerate/cli/verb.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::cli {

void setup_plan(CLI::App& app) {
  struct PlanArguments : Given<verbs::PlanOptions> {
    bool dot = false;
  };
  const auto [verb, a] =
      add_verb<PlanArguments>(app, "plan", "Show the tasks of a step: the Plan of a strategy.");
  verb->add_option("-o,--output", a->output, "Save the Plan.");
  verb->add_flag("--json", a->json, "Print the Plan as JSON.");
  verb->add_flag("--dot", a->dot, "Print the Plan as a graph for GraphViz: ... --dot | dot -Tsvg.");
  verb->callback([a = a] {
    if (a->json && a->dot)
      throw UsageError("--json and --dot exclude each other; give one of them");
    verbs::refuse_input_as_output("--output", a->output, a->options.question.inputs());
    const whatif::Planned planned = verbs::plan(a->options);
    if (!a->output.empty()) doc::save(planned.plan, a->output);
    print_notes(planned.notes);
    // A Plan holds no times of collectives; the Cluster's price stands in the table.
    const auto price = [&](const doc::Task& task) { return whatif::seconds_of(planned, task); };
    fmt::print("{}", a->json  ? doc::to_json(planned.plan)
                     : a->dot ? report::to_dot(planned.plan)
                              : report::text_of(planned.plan, price));
  });
}

}  // namespace linerate::cli
