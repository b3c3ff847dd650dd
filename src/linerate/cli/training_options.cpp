#include "linerate/cli/training_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/compare/accuracy.hpp"
#include "linerate/core/text.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/question_argument.hpp"

namespace linerate::cli {

// Bounds are checked here, and what fits together by the trainer.
void add_training_options(CLI::App& verb, zoo::TrainOptions& t, std::string& input) {
  const CLI::Validator positive = verbs::above_zero(), count = verbs::count();
  verbs::add_with_default(verb, "--data", t.data, "fashion-mnist, mnist, cifar10 or synthetic.");
  verb.add_option("--data-dir", t.data_folder, "Folder with the data set's files.");
  verbs::add_with_default(verb, "--samples", t.samples, "Synthetic training samples.", count);
  verb.add_option("--train-samples", t.train_samples,
                  "Train on this many samples, the first of the set. Default: all.")
      ->check(count);
  verb.add_option("--test-samples", t.test_samples,
                  "Test on this many samples, the first of the set. Default: all.")
      ->check(count);
  verb.add_option("--norm-samples", t.norm_samples,
                  "Samples for the averages of batch norm in tests: the first of the training set, "
                  "with the weights as they are then. Default: the running averages.")
      ->check(count);
  verb.add_option("--input", input, "Shape of a sample, such as 3x32x32, or a sequence length.");
  verb.add_flag("--flip", t.flip, "Mirror training images with probability 1/2.");
  verbs::add_with_default(verb, "--optimizer", t.optimizer, "sgd (Nesterov momentum) or adam.");
  verb.add_option("--lr", t.rate, "Largest learning rate. Default: 0.05 for sgd, 0.001 for adam.")
      ->check(positive);
  verbs::add_with_default(verb, "--momentum", t.momentum, "Momentum of sgd.",
                          verbs::between(0.0, 1.0));
  verbs::add_with_default(verb, "--weight-decay", t.weight_decay, "Weight decay of the optimizer.",
                          verbs::from_zero());
  verbs::add_with_default(verb, "--schedule", t.schedule, "constant, cosine or one-cycle.");
  verbs::add_with_default(verb, "--seed", t.seed,
                          "Seed of weights, order of the data, and dropout.", verbs::from_zero());
  verbs::add_with_default(verb, "--threads", t.threads,
                          "LibTorch threads per rank. 0: cores / ranks.",
                          verbs::count(0, verbs::kMostThreads));
}

// Of a Communicator, for which `default_text` is the default.
void add_timeout_option(CLI::App& verb, Duration& timeout, const std::string& default_text) {
  verbs::add_parsed(verb, "--timeout", timeout, verbs::parse_timeout,
                    "End the run if a rank is silent for this long.")
      ->default_str(default_text);
}

// The options are one list for both programs: `linerate evaluate` reads them and, unless it
// rehearses, starts `linerate-torch`, which reads the same words again.

namespace {

std::string as_it_is(const std::string& text) { return text; }

// What is trained. Descriptions that train has, too, are changed to what they mean here.
void add_model_options(CLI::App& verb, EvaluateArguments& a) {
  verbs::add_parsed(verb, "--models", a.models, verbs::list_of(as_it_is),
                    "Networks with commas between them (`linerate list models`).");
  verbs::add_with_default(verb, "--batch", a.batches,
                          "Samples per rank and step. May be several, with commas.");
  add_training_options(verb, a.train, a.input);
  verb.get_option("--seed")->description("The first seed.");
  verb.get_option("--schedule")
      ->description(
          "constant, cosine or one-cycle. With a rate that falls, the schedule decides when a "
          "target is reached.");
  verb.add_option("--lr-of", a.rates,
                  "Learning rate of one candidate, named as in --compressors: signsgd=0.001. May "
                  "be repeated.")
      ->allow_extra_args(false);
  verb.add_option("--steps", a.train.steps, "Steps of each training. Default: 300.")
      ->check(verbs::count());
  verb.add_option("--test-every", a.train.test_every,
                  "Steps between two tests. Default: a twentieth of the training.")
      ->check(verbs::count());
}

// What is compared, and how often. Candidates are cut at commas outside parentheses, as options of
// a compressor have commas too.
void add_contest_options(CLI::App& verb, EvaluateArguments& a) {
  verbs::add_parsed(
      verb, "--compressors", a.contest.candidates, verbs::list_of(as_it_is),
      "Candidates with commas between them: compressors (\"fp16,topk(density=0.01)\") "
      "or whole strategies (dear+fp16).");
  verbs::add_with_default(
      verb, "--exchange", a.contest.exchange,
      "Exchange of the baselines and of the compressors. Its bucket size is tuned.");
  verbs::add_with_default(verb, "--wire", a.contest.wire,
                          "Type of the 16-bit baseline: fp16 or bf16.",
                          verbs::one_of({"fp16", "bf16"}));
  verbs::add_with_default(verb, "--rounds", a.contest.rounds,
                          "Rounds in which all strategies take turns.", verbs::count(1, 10'000));
  verbs::add_with_default(verb, "--round-steps", a.contest.steps,
                          "Timed steps of a strategy in a round.", verbs::count());
  verbs::add_with_default(verb, "--tuning-rounds", a.contest.tuning_rounds,
                          "Rounds in which bucket sizes take turns.", verbs::count(1, 10'000));
  verbs::add_with_default(verb, "--seeds", a.seeds,
                          "Trainings of each strategy. 0: measure step times only.",
                          verbs::count(0, 1000));
  verb.add_option(
          "--target-accuracy", a.target_accuracy,
          "Target accuracy, 0 to 1. Default: fp32's last accuracy less its spread over seeds.")
      ->check(verbs::between(0.0, 1.0));
  verb.add_flag("--no-equal-time", a.no_equal_time,
                "Leave out the trainings that stop after fp32's time.");
}

// On which network, and where results go.
void add_place_options(CLI::App& verb, EvaluateArguments& a) {
  verbs::add_parsed(verb, "--bandwidth", a.bandwidth, verbs::parse_bandwidth,
                    "Line rate of this launch's network, such as 1Gbit/s. It is only a label, but "
                    "rehearsed plans are made for it. Default: the rate of --link.");
  verbs::add_link_option(verb, a.link);
  verb.add_option("--label", a.label,
                  "Name of the network in the results. Default: the line rate, or host.");
  verb.add_flag("--rehearse", a.rehearse,
                "Measure step times of -w alone: computation waits, as in linerate rehearse.");
  verb.add_option("-w,--workload", a.workload,
                  "The Workload to rehearse: a file, or zoo:NAME with --input and --batch.");
  verbs::add_parsed(verb, "--step-time", a.step_time, parse_time,
                    "One-device step of -w as its source measured it.");
  verb.add_option("--scale", a.scale, "Multiplies gradients and computation of -w. Default: 1.");
  verb.add_option("-c,--cluster", a.cluster,
                  "The Cluster to plan with. It also has the calibrated codecs.");
  verb.add_option("--ranks", a.ranks, "Fail unless the job has this many ranks.")
      ->check(verbs::count());
  verb.add_option("-o,--output", a.output, "File for the results, written after each setup.");
  verb.add_flag("--append", a.append, "Add to the results that are in the file already.");
  add_timeout_option(verb, a.timeout, "300s");
  verb.add_flag("--json", a.json, "Print the results as JSON.");
}

/// A setup's network: by the name given, else by its line rate, else "host". An example: "--link
/// 1Gbit/s" makes "1 Gbit/s", with "--label cloud" it is "cloud". The name is what sets of results
/// are told apart by.
doc::Setup network_of(const EvaluateArguments& a) {
  doc::Setup setup;
  setup.network = "host";
  if (const std::optional<BytesPerSecond> rate = a.bandwidth ? a.bandwidth : a.link) {
    setup.line_rate_bytes_per_s = rate->value;
    setup.network = format_bit_rate(rate->value);
  }
  if (!a.label.empty()) setup.network = a.label;
  return setup;
}

// A rehearsal takes a Workload's times, a training makes its own: what belongs to the other one is
// refused.
void check_together(const EvaluateArguments& a) {
  if (a.rehearse && (a.workload.empty() || a.cluster.empty()))
    throw UsageError("--rehearse: expected -w workload.json and -c cluster.json");
  if (a.rehearse && !a.models.empty())
    throw UsageError("--rehearse: -w says what the model costs; leave out --models");
  if (!a.rehearse && (!a.workload.empty() || !a.cluster.empty()))
    throw UsageError("-w and -c are for a rehearsal; add --rehearse, or leave them out");
  if (!a.rehearse && (a.step_time || !a.scale.empty()))
    throw UsageError(
        "--step-time and --scale are for a rehearsal; add --rehearse with -w, or leave them out");
  if (!a.rehearse && a.models.empty())
    throw UsageError(
        "--models: expected networks, or --rehearse with -w and -c, found neither; give one of "
        "them");
  if (a.append && a.output.empty())
    throw UsageError("--append: expected -o with the file to add to, found none; give -o FILE");
  verbs::refuse_input_as_output("--output", a.output, {a.workload, a.cluster});
}

}  // namespace

void add_evaluate_verb(CLI::App& app, void (*run)(const EvaluateArguments&)) {
  const auto a = std::make_shared<EvaluateArguments>();
  CLI::App& verb = *app.add_subcommand(
      "evaluate", "Measure compressors against tuned baselines: step times and accuracy.");
  add_model_options(verb, *a);
  add_contest_options(verb, *a);
  add_place_options(verb, *a);
  verb.footer(
      "Start ranks with mpirun: tools/mpirun -n 2 linerate evaluate --models lenet --data "
      "fashion-mnist --compressors \"fp16,powersgd(rank=4)\" -o results.json");
  verb.callback([a, run] {
    check_together(*a);
    verbs::check(a->contest);
    run(*a);
  });
}

// Setups are made after the ranks have come together, as they need their number. Rank 0 alone
// prints; all ranks fail alike.
void run_evaluation(const EvaluateArguments& a, const MakeSetups& make) {
  comm::set_link(a.link);
  comm::WorldOptions world;
  world.timeout = a.timeout;
  world.expected_size = a.ranks;
  doc::Setup place = network_of(a);
  const auto communicator = comm::make_world(world);
  place.ranks = communicator->size();
  place.transport = communicator->transport();
  ProgressLine line(communicator->rank() != 0);
  const auto progress = [&line](const std::string& what) { line.show("evaluate: " + what); };
  const doc::Evaluation all =
      verbs::run_setups(*communicator, a.output, a.append, make(*communicator, place, progress));
  line.clear();
  if (communicator->rank() == 0)
    fmt::print("{}", a.json ? doc::to_json(all) : compare::to_text(all));
}

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
  const auto [verb, a] = add_verb<CalibrateArguments>(
      app, "calibrate", "Fit the cost of collectives to logs, traces or probes of these ranks.");
  verb->add_option("-o,--output", a->output, "File to write the Cluster to.")->required();
  verb->add_flag("--json", a->json,
                 "Print the fit as JSON: errors, switches between algorithms, notes.");
  verb->callback([a = a, run] { run(*a); });
}

}  // namespace linerate::cli
