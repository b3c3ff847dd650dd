#include "linerate/cli/evaluate_arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "linerate/cli/option_checks.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/evaluate/text.hpp"

namespace linerate::cli {
namespace {

void add_training_options(CLI::App& verb, EvaluateArguments& a) {
  const CLI::Validator positive = above_zero();
  verb.add_option("--models", a.models, "Networks (`linerate list models`), with commas.");
  verb.add_option("--data", a.data, "fashion-mnist, mnist, cifar10 or synthetic.")
      ->capture_default_str();
  verb.add_option("--data-dir", a.data_folder, "Folder of the data set's files.");
  verb.add_option("--samples", a.samples, "Synthetic training samples; absent: 2048.")
      ->check(positive);
  verb.add_option("--train-samples", a.train_samples,
                  "Train on the first so many samples of the set; absent: all.")
      ->check(positive);
  verb.add_option("--test-samples", a.test_samples, "Test on the first so many; absent: all.")
      ->check(positive);
  verb.add_option("--input", a.input, "Shape of a sample, 3x32x32, or a sequence length.");
  verb.add_option("--batch", a.batches, "Samples per rank and step; several with commas.")
      ->capture_default_str();
  verb.add_option("--optimizer", a.optimizer, "sgd (Nesterov momentum) or adam.")
      ->capture_default_str();
  verb.add_option("--lr", a.rate, "Learning rate; 0.05 for sgd, 0.001 for adam.")->check(positive);
  verb.add_option("--lr-of", a.rates,
                  "Of one candidate, as it stands in --compressors: signsgd=0.001; repeated.")
      ->allow_extra_args(false);
  verb.add_option("--momentum", a.momentum, "Of sgd; absent: 0.9.")->check(CLI::Range(0.0, 1.0));
  verb.add_option("--weight-decay", a.weight_decay)->check(from_zero());
  verb.add_option("--schedule", a.schedule,
                  "constant, cosine or one-cycle. A rate that falls decides by itself when a "
                  "target is reached.")
      ->capture_default_str();
  verb.add_flag("--flip", a.flip, "Mirror training images with probability 1/2.");
  verb.add_option("--seed", a.seed, "The first seed.")->capture_default_str();
  verb.add_option("--threads", a.threads, "LibTorch threads per rank; 0: cores / ranks.")
      ->check(from_zero())
      ->capture_default_str();
}

void add_contest_options(CLI::App& verb, EvaluateArguments& a) {
  const CLI::Validator positive = above_zero();
  verb.add_option("--compressors", a.compressors,
                  "Candidates with commas: compressors, \"fp16,topk(density=0.01)\", or whole "
                  "strategies, dear+fp16.");
  verb.add_option("--exchange", a.contest.exchange,
                  "Of the baselines and in front of compressors; its bucket size is tuned.")
      ->capture_default_str();
  verb.add_option("--wire", a.contest.wire, "Of the 16-bit baseline: fp16 or bf16.")
      ->check(CLI::IsMember({"fp16", "bf16"}))
      ->capture_default_str();
  verb.add_option("--rounds", a.contest.rounds, "In which all strategies take turns.")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  verb.add_option("--round-steps", a.contest.steps, "Timed steps of a strategy in a round.")
      ->check(positive)
      ->capture_default_str();
  verb.add_option("--tuning-rounds", a.contest.tuning_rounds, "In which bucket sizes take turns.")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  verb.add_option("--seeds", a.seeds, "Trainings of each strategy; 0: step times alone.")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  verb.add_option("--steps", a.steps, "Of each training.")->check(positive)->capture_default_str();
  verb.add_option("--test-every", a.test_every, "Steps; absent: a twentieth of the training.")
      ->check(positive);
  verb.add_option("--target-accuracy", a.target_accuracy,
                  "0 to 1; absent: fp32's last less its spread over seeds.")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_flag("--no-equal-time", a.no_equal_time, "Leave out trainings within fp32's time.");
}

void add_place_options(CLI::App& verb, EvaluateArguments& a) {
  verb.add_option("--bandwidth", a.bandwidth,
                  "Line rate of this launch's network: 1Gbit/s. A label; rehearsed plans are made "
                  "for it.");
  verb.add_option("--network", a.network, "Its name; absent: the line rate, or host.");
  verb.add_flag("--rehearse", a.rehearse,
                "Computation waits, as in linerate rehearse: step times of -w alone.");
  verb.add_option("-w,--workload", a.workload,
                  "The Workload to rehearse: a file, or zoo:NAME with --input and --batch.");
  verb.add_option("--step-time", a.step_time, "Of -w: one-device step as its source measured it.");
  verb.add_option("--scale", a.scale,
                  "Of -w: gradients and computation so many times as large; absent: 1.");
  verb.add_option("-c,--cluster", a.cluster, "The Cluster to plan with, with calibrated codecs.");
  verb.add_option("--ranks", a.ranks, "Fail unless the world has so many ranks.")
      ->check(above_zero());
  verb.add_option("-o,--output", a.output, "Write the results here, after each setup.");
  verb.add_flag("--append", a.append, "Add to the results that the file holds.");
  verb.add_option("--timeout", a.timeout, "A rank silent for this long ends the run.")
      ->capture_default_str();
  verb.add_flag("--json", a.json, "Print the results as JSON.");
}

}  // namespace

void add_evaluate_options(CLI::App& verb, EvaluateArguments& a) {
  add_training_options(verb, a);
  add_contest_options(verb, a);
  add_place_options(verb, a);
  verb.footer(
      "Start ranks with mpirun: tools/mpirun -n 2 linerate evaluate --models lenet --data "
      "fashion-mnist --compressors \"fp16,powersgd(rank=4)\" -o results.json");
}

void check_together(const EvaluateArguments& a) {
  if (a.rehearse && (a.workload.empty() || a.cluster.empty()))
    throw UsageError("--rehearse: expected -w workload.json and -c cluster.json");
  if (a.rehearse && !a.models.empty())
    throw UsageError("--rehearse: -w says what the model costs; leave out --models");
  if (!a.rehearse && (!a.workload.empty() || !a.cluster.empty()))
    throw UsageError("-w and -c are for a rehearsal: add --rehearse, or leave them out");
  if (!a.rehearse && (!a.step_time.empty() || !a.scale.empty()))
    throw UsageError(
        "--step-time and --scale are for a rehearsal: add --rehearse with -w, or leave them out");
  if (!a.rehearse && a.models.empty())
    throw UsageError("what is evaluated? give --models, or --rehearse with -w and -c");
  if (a.append && a.output.empty())
    throw UsageError("--append: expected -o with the file to add to");
  refuse_input_as_output("--output", a.output, {a.workload, a.cluster});
}

evaluate::ContestOptions contest_of(const EvaluateArguments& a) {
  evaluate::ContestOptions contest = a.contest;
  if (!a.compressors.empty()) contest.candidates = split_outside_parentheses(a.compressors, ',');
  evaluate::check(contest);
  return contest;
}

std::optional<BytesPerSecond> line_rate_of(const EvaluateArguments& a) {
  if (a.bandwidth.empty()) return std::nullopt;
  return parse_option("--bandwidth", a.bandwidth, parse_bandwidth);
}

std::string network_of(const EvaluateArguments& a) {
  if (!a.network.empty()) return a.network;
  const auto rate = line_rate_of(a);
  return rate ? format_bit_rate(rate->value) : "host";
}

void print(const doc::Evaluation& evaluation, const EvaluateArguments& a) {
  fmt::print("{}", a.json ? doc::to_json(evaluation) : evaluate::to_text(evaluation));
}

}  // namespace linerate::cli
