// Data-parallel training of a network of the zoo: what `linerate train` does. No LibTorch in this
// header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/models/description.hpp"

namespace linerate::zoo {

struct TrainOptions {
  std::string model = "lenet";
  std::optional<models::Shape>
      input{};  // absent: the data set's own; the model's for synthetic data
  std::optional<std::int64_t> classes{};
  std::string variant = "auto";  // "auto", "published", "small": models::Variant

  std::string data = "synthetic";
  std::filesystem::path data_folder{};
  std::int64_t samples = 2048;                  // of synthetic data
  std::optional<std::int64_t> train_samples{};  // the first so many of the set; absent: all
  std::optional<std::int64_t> test_samples{};
  bool flip = false;  // mirror training images with probability 1/2

  std::string strategy = "ddp";
  std::filesystem::path cluster{};  // for strategies that plan by cost; empty: a quick probe
  std::int64_t batch = 64;          // per rank
  std::optional<std::int64_t> epochs{};
  std::optional<std::int64_t>
      steps{};  // stop after so many; without epochs also the length of the schedule

  std::string optimizer = "sgd";
  std::optional<double> rate{};  // absent: 0.05 for sgd, 0.001 for adam
  double momentum = 0.9;
  double weight_decay = 0;
  std::string schedule = "one-cycle";

  std::uint64_t seed = 1;
  int threads = 0;  // of LibTorch per rank; 0: cores / ranks
  std::int64_t checked_steps = 3;
  std::optional<std::int64_t> test_every{};  // steps; tests besides those at the end of each epoch
  /// Tests take batch norm's averages from the first so many training samples, by the weights as
  /// they are then; absent: the running averages. Training's own stay as they are.
  std::optional<std::int64_t> norm_samples{};
  /// A loss that is no number ends the run without an error, keeping its results.
  bool ends_when_diverged = false;

  std::filesystem::path checkpoint{};              // folder; empty: none
  std::optional<std::int64_t> checkpoint_every{};  // steps; absent: at the end of each epoch
  bool resume = false;
  bool overwrite = false;  // start anew over another run's checkpoint

  std::filesystem::path record{};  // Timeline; the Workload lies next to it as <stem>.workload.json
  std::int64_t record_steps = 100;  // at most
  std::filesystem::path losses{};   // CSV: the loss of every step
  std::string source{};             // the command, for people
};

/// The network that these options train. Throws UsageError.
models::Description describe(const TrainOptions& options);
/// The largest one of the run.
double learning_rate(const TrainOptions& options);

struct EpochReport {
  std::int64_t epoch = 0;  // from 1
  double train_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  double seconds = 0;  // of training, without the test
};

/// A test of the model during the run.
struct TestReport {
  std::int64_t step = 0;
  double train_s = 0;  // of the steps run here until then, without tests; this rank's
  double loss = 0;
  double accuracy = 0;
};

struct TrainReport {
  std::int64_t parameters = 0;
  std::int64_t steps = 0;         // done since the start of training, resumed ones included
  std::int64_t global_batch = 0;  // as asked for
  double samples_per_step = 0;    // that steps run here held, mean
  std::vector<EpochReport> epochs;
  std::vector<TestReport> tests;  // at the ends of epochs and as `test_every` says
  std::vector<double> losses;     // of the global batch, by step run here
  std::int64_t first_step = 0;    // of `losses`
  double median_step_s = 0;
  /// As the communicator counts what it moves for this rank, messages and reads of peers' memory;
  /// medians over the steps run here.
  std::int64_t sent_bytes_per_step = 0, received_bytes_per_step = 0;
  std::uint64_t weights_hash = 0;           // over all parameters and buffers
  std::optional<double> one_rank_step_s{};  // recorded runs
  std::optional<double> recorded_step_s{};  // median of the recorded steps
  std::optional<double> scaling_factor{};   // of these two; absent: above 1, which a note says
  std::int64_t recorded_steps = 0;
  int ended_by = 0;        // the signal of TrainObserver::asks_to_end
  std::string diverged{};  // the reason, if that ended the run
  std::vector<std::string> notes;
};

struct TrainObserver {
  /// Of every rank, or of none: the signal that asks the run to end between two steps, or 0. One
  /// rank's ends it on all of them, with what was recorded, losses and a checkpoint written.
  std::function<int()> asks_to_end;
  // The others are called on rank 0 only.
  std::function<void(std::int64_t step, std::int64_t steps, double loss)> on_step;
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(const std::string&)> on_note;
};

/// Collective. The report is complete on rank 0; losses and epochs are the same everywhere.
///
/// Before the first step ranks compare every option that changes results, and rank 0 makes and
/// tries the places it will write to. At each checkpoint, each epoch's end and the end they compare
/// the bits of weights, buffers and optimizer state. Throws UsageError (also for a folder with
/// another run's checkpoint), InputError (data, places, checkpoint) and CommError (ranks that
/// differ), each on every rank.
TrainReport train(const TrainOptions& options, comm::Communicator& communicator,
                  const TrainObserver& observer = {});

}  // namespace linerate::zoo
