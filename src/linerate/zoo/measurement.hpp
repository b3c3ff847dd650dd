// What `train --record` measures: the Timeline of real steps and, between them, steps in which all
// ranks compute and nothing is sent. The latter give T_1 and the Workload. Private to zoo.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/exec/sampler.hpp"
#include "linerate/models/description.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/layer_timer.hpp"

namespace linerate::zoo {

/// Moments of one step on this rank (steady clock, ns), in the order in which they pass.
struct StepProbe {
  torch_adapter::LayerTimer* timer = nullptr;
  torch_adapter::StepSpans spans = {};
  std::int64_t start_ns = 0;     // then data loading and zero_grad
  std::int64_t forward_ns = 0;   // the forward pass begins
  std::int64_t backward_ns = 0;  // the loss is there
  std::int64_t exchange_ns = 0;  // backward is over
  std::int64_t update_ns = 0;    // then exchange and update, or only the update
  std::int64_t end_ns = 0;
  torch_adapter::StepReport report = {};  // of a step with an exchange
};

/// The stretches of a step in which no layer computed, because an operator waited for its weight or
/// a hook computed a factor.
SpanSet without_layers(const torch_adapter::StepReport& report);

/// Medians of a step (with its interval) and of its parts. The step is at least the sum of its
/// parts, and the tail is the rest of it.
void set_step(doc::Bounded step_s, double forward_s, double backward_s, double update_s,
              doc::Workload& w);

/// How much longer the timeline's steps compute than the Workload's rank alone, whose forward time
/// is known. Absent for one rank.
std::optional<doc::SeveralRanks> several_ranks_of(const doc::Timeline& timeline,
                                                  const doc::Workload& workload);

/// Blocks of compute-only steps and of recorded ones take turns, so that a drift of the machine's
/// speed meets both alike. The first step after each change is run and not counted.
class Measurement {
 public:
  static constexpr std::int64_t kBlock = 10;

  Measurement(comm::Communicator& communicator, const torch_adapter::NamedTensors& parameters,
              const models::Description& model, std::int64_t first_step, std::int64_t last_step,
              std::int64_t wanted);

  exec::Recorder& recorder() { return recorder_; }
  /// Is a block of compute-only steps due before this step?
  bool block_due(std::int64_t step) const;
  /// Whether to record this step: it directly follows a block.
  bool records(std::int64_t step) const;
  /// Whether the last step to record is there.
  bool is_whole() const;
  /// Whether a block of recorded steps is over and result() would have all steps, or a tenth more
  /// than it had. So a run that ends early leaves a recent result, and the writes get rarer as it
  /// grows.
  bool is_worth_writing() const;
  StepProbe probe() { return {.timer = &timer_}; }

  void begin_step(std::int64_t step) { recorder_.begin_step(static_cast<std::int32_t>(step)); }
  void add_recorded(std::int64_t step, const StepProbe& probe);
  void add_compute_only(const StepProbe& probe);

  struct Result {
    doc::Timeline timeline;
    doc::Workload workload;
    double recorded_step_s = 0;
    std::int64_t steps = 0;  // recorded
  };
  /// What was recorded so far. Collective. The result is rank 0's, and absent if no step was
  /// recorded. `last`: counters are in it, and nothing is recorded after it.
  std::optional<Result> result(std::int64_t batch, std::int64_t buffer_bytes, bool last);

 private:
  doc::Workload workload_of(const std::vector<double>& gathered) const;
  /// Each run of gradients of one layer, in the order in which they got ready: (layer, last ready).
  std::vector<std::pair<std::size_t, std::int64_t>> backward_layers(
      const torch_adapter::StepSpans& spans) const;

  comm::Communicator& communicator_;
  const models::Description& model_;
  const torch_adapter::NamedTensors parameters_;
  exec::Recorder recorder_;
  exec::Sampler sampler_;
  torch_adapter::LayerTimer timer_;
  std::int64_t first_, blocks_, block_;
  std::vector<std::int32_t> layer_names_, layer_sets_;  // Recorder's ids
  std::vector<double> alone_;                           // a row a compute-only step
  std::vector<std::int32_t> recorded_;
  std::size_t in_result_ = 0;  // recorded steps of the last result
};

}  // namespace linerate::zoo
