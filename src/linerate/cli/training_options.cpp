#include "linerate/cli/training_options.hpp"

#include <CLI/CLI.hpp>

#include "linerate/verbs/option_checks.hpp"

namespace linerate::cli {

// Bounds are checked here, and what fits together by the trainer.
void add_training_options(CLI::App& verb, zoo::TrainOptions& t, std::string& input) {
  const CLI::Validator positive = verbs::above_zero(), count = verbs::count();
  verb.add_option("--data", t.data, "fashion-mnist, mnist, cifar10 or synthetic.")
      ->capture_default_str();
  verb.add_option("--data-dir", t.data_folder, "Folder with the data set's files.");
  verb.add_option("--samples", t.samples, "Synthetic training samples.")
      ->check(count)
      ->capture_default_str();
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
  verb.add_option("--optimizer", t.optimizer, "sgd (Nesterov momentum) or adam.")
      ->capture_default_str();
  verb.add_option("--lr", t.rate, "Largest learning rate. Default: 0.05 for sgd, 0.001 for adam.")
      ->check(positive);
  verb.add_option("--momentum", t.momentum, "Momentum of sgd.")
      ->check(verbs::between(0.0, 1.0))
      ->capture_default_str();
  verb.add_option("--weight-decay", t.weight_decay, "Weight decay of the optimizer.")
      ->check(verbs::from_zero())
      ->capture_default_str();
  verb.add_option("--schedule", t.schedule, "constant, cosine or one-cycle.")
      ->capture_default_str();
  verb.add_option("--seed", t.seed, "Seed of weights, order of the data, and dropout.")
      ->check(verbs::from_zero())
      ->capture_default_str();
  verb.add_option("--threads", t.threads, "LibTorch threads per rank. 0: cores / ranks.")
      ->check(verbs::count(0, verbs::kMostThreads))
      ->capture_default_str();
}

}  // namespace linerate::cli
