// The training loop of train(). Private to zoo.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/kfac/kfac.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/zoo/checkpoint.hpp"
#include "linerate/zoo/dataset.hpp"
#include "linerate/zoo/measurement.hpp"
#include "linerate/zoo/network.hpp"
#include "linerate/zoo/optimizer.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

/// For trainings that take turns on one communicator.
struct Shared {
  exec::Recorder* recorder = nullptr;  // outlives the Trainer
  std::string name = {};               // of its collectives
};

class Trainer {
 public:
  Trainer(const TrainOptions& options, comm::Communicator& communicator,
          const TrainObserver& observer, const Shared& shared = {});
  TrainReport run();

  /// One step alone, over the samples of the first epoch again and again; nothing is tested. Not
  /// together with run().
  StepProbe take_step();
  /// Waits for whatever a step left under way, such as the second half of a decoupled exchange.
  void settle() { parallel_->settle(); }
  /// Passes over what `taken` steps left of a compressor's warm-up: the next step is of the Plan's
  /// cycle. Collective.
  void pass_over_warm_up(std::int64_t taken);
  std::int64_t parameters() const { return network_->description().parameter_elements(); }

 private:
  /// How a step runs: with its exchange, or computing only and without a trace in the model.
  enum class Mode { exchange, compute_only };

  void set_up();
  void take_places();
  void resume();
  void load(const Checkpoint& checkpoint, const std::string& place);
  void save();
  /// Throws the same CommError on every rank when their weights, buffers or optimizers differ.
  void require_same_state();
  torch_adapter::NamedTensors state() const;
  Settings settings() const;
  void note(const std::string& text);

  /// Trains until the epoch or the run is over; true when the epoch is.
  bool run_epoch(EpochReport& report);
  void visit_epoch();
  /// Takes one step over this share of the epoch's order. Returns this rank's part of the global
  /// mean loss, whose sum over the ranks is that loss. Fills the moments of `probe`.
  double step(Range whole, Mode mode, StepProbe* probe);
  void measure_compute_only();
  /// Over all test samples, on every rank.
  TestReport run_test();
  /// run_test() and note the result; once a step.
  const TestReport& test();
  /// Writes what was recorded so far; `last`: and records nothing more.
  void write_recorded(bool last);
  /// Whether a rank was asked to end the run: the same on all ranks, and so is the signal.
  bool is_to_end();

  const TrainOptions options_;
  comm::Communicator& communicator_;
  const TrainObserver& observer_;
  DataSet data_;
  std::shared_ptr<Network> network_;
  torch_adapter::NamedTensors parameters_, buffers_;
  std::unique_ptr<Batcher> train_batches_, test_batches_;
  std::unique_ptr<Measurement> measurement_;
  std::optional<plan::Kfac> curvature_;        // absent: the strategy does not precondition
  std::unique_ptr<torch_adapter::KFAC> kfac_;  // that it asks for
  std::unique_ptr<torch_adapter::DataParallel> parallel_;
  std::vector<std::string> resumed_compression_;  // by the ranks that saved it
  torch_adapter::NamedTensors resumed_curvature_;
  std::unique_ptr<Optimizer> optimizer_;
  RateSchedule schedule_;
  EpochPlan plan_;
  Settings settings_;
  doc::Cluster cluster_;
  std::vector<std::int64_t> order_;  // of the current epoch
  std::int64_t epochs_ = 1, last_step_ = 0;
  std::optional<CheckpointFolder> folder_;  // on rank 0 of a run with checkpoints
  std::int64_t compared_step_ = -1;         // of the last require_same_state()
  std::int64_t epoch_ = 0, step_in_epoch_ = 0, step_ = 0, first_step_ = 0;
  /// The signal that asks to end, and how long a step took: the largest of all ranks. It travels
  /// while the next step computes.
  std::array<double, 2> ending_{};
  comm::WorkPtr asking_;
  std::int64_t next_question_ = 0;               // step
  std::optional<Measurement::Result> measured_;  // without its documents
  bool recorded_ = false;                        // all that is to be recorded
  int ended_by_ = 0;                             // a signal
  std::int64_t samples_ = 0;                     // of the steps run here
  std::vector<double> losses_, seconds_, sent_bytes_, received_bytes_;
  std::vector<TestReport> tests_;
  std::vector<std::string> notes_;
};

}  // namespace linerate::zoo
