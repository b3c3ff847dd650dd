// linerate evaluate, inside linerate-torch: a setup for each model and batch.
#include "linerate/cli/torch_verb.hpp"
#include "linerate/cli/training_options.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/zoo/timed_training.hpp"

namespace linerate::cli {
namespace {

/// "topk(density=0.01)=0.1": the last sign is the one before the rate. The others belong to the
/// candidate's own options.
std::pair<std::string, double> rate_of(const std::string& text) {
  const std::size_t sign = text.rfind('=');
  if (sign == std::string::npos) throw UsageError("expected CANDIDATE=RATE, found " + text);
  const double rate = parse_number(text.substr(sign + 1));
  if (!(rate > 0)) throw UsageError("expected a rate above 0, found " + text.substr(sign + 1));
  return {std::string(trim(text.substr(0, sign))), rate};
}

// All but model and batch, which differ from setup to setup.
zoo::TrainedSetupOptions options_of(const EvaluateArguments& a) {
  zoo::TrainedSetupOptions o;
  o.contest = a.contest;
  o.train = a.train;
  if (!a.input.empty()) o.train.input = models::parse_shape(a.input);
  o.seeds = a.seeds;
  o.equal_time = !a.no_equal_time;
  for (const std::string& text : a.rates)
    o.rates.insert(verbs::parse_option("--lr-of", text, rate_of));
  return o;
}

/// One setup a model and batch. An example: "--models lenet,resnet20 --batch 32,64" makes four,
/// model by model.
std::vector<zoo::TrainedSetupOptions> setups_of(const EvaluateArguments& a) {
  std::vector<zoo::TrainedSetupOptions> all;
  for (const std::string& model : a.models)
    for (const std::int64_t batch :
         verbs::parse_option("--batch", a.batches, verbs::list_of(parse_integer))) {
      if (batch < 1) throw UsageError("--batch: expected a number above 0, found " + a.batches);
      zoo::TrainedSetupOptions& o = all.emplace_back(options_of(a));
      o.train.model = model;
      o.train.batch = batch;
    }
  return all;
}

// All setups are read before the first is trained: a mistake in the last would show after hours.
void evaluate_trained(const EvaluateArguments& a) {
  const std::vector<zoo::TrainedSetupOptions> all = setups_of(a);
  run_evaluation(
      a, [&](comm::Communicator& communicator, doc::Setup place, const verbs::Progress& progress) {
        place.target_accuracy = a.target_accuracy;
        std::vector<verbs::NewSetup> setups;
        for (const zoo::TrainedSetupOptions& o : all)
          setups.push_back(zoo::trained_setup(communicator, o, place, progress));
        return setups;
      });
}

}  // namespace

void setup_torch_evaluate(CLI::App& app) { add_evaluate_verb(app, evaluate_trained); }

}  // namespace linerate::cli
