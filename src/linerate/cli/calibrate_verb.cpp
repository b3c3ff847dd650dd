#include "linerate/cli/calibrate_verb.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/log_output.hpp"
#include "linerate/cli/progress_line.hpp"
#include "linerate/report/cluster_text.hpp"
#include "linerate/verbs/option_value.hpp"

namespace linerate::cli {

// Under mpirun all ranks measure. The first writes and prints.
void run_calibrate(const CalibrateArguments& a, const verbs::TorchProbes& probes) {
  verbs::refuse_input_as_output("--output", a.output, a.options.inputs());
  ProgressLine progress;
  const verbs::Calibrated found = verbs::calibrate(a.options, progress.caller(), probes);
  progress.clear();
  if (!found.is_first) return;
  doc::save(found.cluster, a.output);
  if (!a.json) print_notes(found.notes);
  fmt::print("{}", a.json ? report::summary_json(found.cluster, found.notes)
                          : report::to_text(found.cluster));
}

void add_calibrate_verb(CLI::App& app, void (*run)(const CalibrateArguments&)) {
  const auto a = std::make_shared<CalibrateArguments>();
  CLI::App* verb = app.add_subcommand(
      "calibrate", "Fit the cost of collectives to logs, traces or probes of these ranks.");
  verbs::add_options(*verb, a->options);
  verb->add_option("-o,--output", a->output, "File to write the Cluster to.")->required();
  verb->add_flag("--json", a->json,
                 "Print the fit as JSON: errors, switches between algorithms, notes.");
  verb->callback([a, run] { run(*a); });
}

}  // namespace linerate::cli
