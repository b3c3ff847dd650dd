// linerate evaluate: compressors beside tuned baselines. Rehearsals run here; trainings in
// `linerate-torch`, which gets the same options.
#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/evaluate_arguments.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/progress_line.hpp"
#include "linerate/cli/start_beside.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/cli/workload_argument.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/evaluate/run/rehearsed.hpp"
#include "linerate/evaluate/run/results_file.hpp"
#include "linerate/models/workload.hpp"

namespace linerate::cli {
namespace {

WorkloadArgument workload_of(const EvaluateArguments& a) {
  WorkloadArgument w;
  w.source.reference = a.workload;
  w.source.input = a.input;
  w.step_time = a.step_time;
  w.scale = a.scale;
  if (models::zoo_name(a.workload))
    w.source.batch = parse_option("--batch", a.batches, parse_integer);
  return w;
}

void rehearse(const EvaluateArguments& a) {
  evaluate::RehearsedOptions options;
  options.contest = contest_of(a);
  options.network = network_of(a);
  options.line_rate = line_rate_of(a);
  const doc::Workload workload = read_workload(workload_of(a));
  const doc::Cluster cluster = doc::load_cluster(a.cluster);
  comm::WorldOptions world;
  world.timeout = parse_option("--timeout", a.timeout, parse_time);
  world.expected_size = a.ranks;
  const auto communicator = comm::make_world(world);
  evaluate::ResultsFile results(*communicator, a.output, a.append);
  results.require_new(evaluate::empty_setup(*communicator, workload, options));
  ProgressLine line(communicator->rank() != 0);
  results.add(evaluate::rehearsed_setup(
      *communicator, workload, cluster, options,
      [&line](const std::string& what) { line.show("evaluate: " + what); }));
  line.clear();
  if (communicator->rank() == 0) print(results.all(), a);
}

/// As they were given, for the other program.
std::vector<std::string> arguments_of(const CLI::App& verb) {
  std::vector<std::string> arguments = {verb.get_name()};
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0) continue;
    if (option->get_expected_max() == 0) {
      arguments.push_back(option->get_name());
      continue;
    }
    for (const std::string& value : option->results())
      arguments.insert(arguments.end(), {option->get_name(), value});
  }
  return arguments;
}

}  // namespace

void setup_evaluate(CLI::App& app) {
  const auto a = std::make_shared<EvaluateArguments>();
  CLI::App* verb = app.add_subcommand(
      "evaluate", "Measure compressors beside tuned baselines: step times and accuracy.");
  add_evaluate_options(*verb, *a);
  verb->callback([a, verb] {
    check_together(*a);
    if (a->rehearse) return rehearse(*a);
    start_beside("linerate-torch", arguments_of(*verb));
  });
}

}  // namespace linerate::cli
