// linerate evaluate, inside linerate-torch: options, a call for each model and batch, printing on
// rank 0.
#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/evaluate_arguments.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/progress_line.hpp"
#include "linerate/cli/torch_verb.hpp"
#include "linerate/comm/agreement.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/evaluate/run/results_file.hpp"
#include "linerate/evaluate/trained/measured.hpp"

namespace linerate::cli {
namespace {

zoo::TrainOptions training_of(const EvaluateArguments& a) {
  zoo::TrainOptions t;
  if (!a.input.empty()) t.input = models::parse_shape(a.input);
  t.data = a.data;
  t.data_folder = a.data_folder;
  if (a.samples) t.samples = *a.samples;
  t.train_samples = a.train_samples;
  t.test_samples = a.test_samples;
  t.flip = a.flip;
  t.optimizer = a.optimizer;
  t.schedule = a.schedule;
  t.rate = a.rate;
  if (a.momentum) t.momentum = *a.momentum;
  if (a.weight_decay) t.weight_decay = *a.weight_decay;
  t.seed = a.seed;
  t.threads = a.threads;
  t.steps = a.steps;
  t.test_every = a.test_every;
  return t;
}

/// "topk(density=0.01)=0.1": the last sign is the one in front of the rate.
std::pair<std::string, double> rate_of(const std::string& text) {
  const std::size_t sign = text.rfind('=');
  if (sign == std::string::npos) throw UsageError("expected CANDIDATE=RATE, found " + text);
  const double rate = parse_number(text.substr(sign + 1));
  if (!(rate > 0)) throw UsageError("expected a rate above 0, found " + text.substr(sign + 1));
  return {std::string(trim(text.substr(0, sign))), rate};
}

evaluate::MeasuredOptions options_of(const EvaluateArguments& a) {
  evaluate::MeasuredOptions o;
  o.contest = contest_of(a);
  o.train = training_of(a);
  o.seeds = a.seeds;
  o.target_accuracy = a.target_accuracy;
  o.equal_time = !a.no_equal_time;
  for (const std::string& text : a.rates) o.rates.insert(parse_option("--lr-of", text, rate_of));
  o.network = network_of(a);
  o.line_rate = line_rate_of(a);
  return o;
}

/// One setup a model and batch.
std::vector<evaluate::MeasuredOptions> setups_of(const EvaluateArguments& a) {
  const auto same = [](const std::string& text) { return text; };
  std::vector<evaluate::MeasuredOptions> all;
  for (const std::string& model : parse_option_list("--models", a.models, same))
    for (const std::int64_t batch : parse_option_list("--batch", a.batches, parse_integer)) {
      if (batch < 1) throw UsageError("--batch: expected a number above 0, found " + a.batches);
      evaluate::MeasuredOptions& o = all.emplace_back(options_of(a));
      o.train.model = model;
      o.train.batch = batch;
    }
  return all;
}

void measure(const EvaluateArguments& a) {
  const std::vector<evaluate::MeasuredOptions> setups = setups_of(a);
  comm::WorldOptions world;
  world.timeout = parse_option("--timeout", a.timeout, parse_time);
  world.expected_size = a.ranks;
  const auto communicator = comm::make_world(world);
  evaluate::ResultsFile results(*communicator, a.output, a.append);
  for (const evaluate::MeasuredOptions& o : setups)
    results.require_new(evaluate::empty_setup(*communicator, o));
  ProgressLine line(communicator->rank() != 0);
  for (const evaluate::MeasuredOptions& o : setups)
    results.add(evaluate::measured_setup(
        *communicator, o, [&line](const std::string& what) { line.show("evaluate: " + what); }));
  line.clear();
  if (communicator->rank() == 0) print(results.all(), a);
}

}  // namespace

void setup_torch_evaluate(CLI::App& app) {
  const auto a = std::make_shared<EvaluateArguments>();
  CLI::App* verb = app.add_subcommand(
      "evaluate", "Measure compressors beside tuned baselines: step times and accuracy.");
  add_evaluate_options(*verb, *a);
  verb->callback([a] {
    check_together(*a);
    measure(*a);
  });
}

}  // namespace linerate::cli
