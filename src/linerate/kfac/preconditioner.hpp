// K-FAC's step on one rank, with the options that hold in it. Private to kfac and torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linerate/kfac/collector.hpp"
#include "linerate/kfac/curvature_block.hpp"
#include "linerate/kfac/kfac_options.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/streams/late_values.hpp"

namespace linerate::torch_adapter {

// Options that a strategy may give, too. Private to kfac and torch_adapter.

/// An option that may stand in a strategy's text or in the options.
struct TunedOption {
  const char* option;  // of the text
  const char* field;   // of the options
  std::optional<ScheduledValue> KfacOptions::*value;
  bool in_plan;                                                     // the Plan depends on it
  std::function<std::optional<double>(const plan::Kfac&)> in_text;  // absent: it says nothing
};
const std::vector<TunedOption>& tuned_options();
/// Takes from the strategy's text what the options do not say; `intervals`: those, too.
void fill_tuned(KfacOptions& options, const plan::Kfac& kfac, bool intervals);
/// The options with values for all that is absent. Throws UsageError if they contradict each other.
KfacOptions checked_options(const KfacOptions& given);

// From a strategy's kfac(...) to the preconditioner's options. Private to linerate.

/// What the text says. The rest, such as the loss's average and the rate, is the caller's.
[[nodiscard]] KfacOptions planned_options(const plan::Kfac& kfac);

// A step of K-FAC on this rank, alone or as one of several. Private to kfac and torch_adapter.

/// K-FAC's step. Passes fill the blocks' statistics by the collector. For a rank alone, take() is
/// the step. It calls, in this order, what the tasks of a Plan call if ranks share their steps:
///
///     check();                                       // refuses a batch
///     begin();
///     fold_batches(blocks) | fold(factors, sums)     // if they are due
///     invert(factors) | take_inverses(factors)
///     precondition(blocks) | take_directions(blocks)
///     clip();
///     keep() | drop()                                // whether the round counts
///     write();
///
/// Averages and inverses change before it is known whether the step counts. So remember() keeps
/// what was, which shares its memory, and undo() goes back to it.
///
/// No value of a tensor is read except for reports. Reports come at once on the CPU, and in a later
/// step on a device. A failure that happened too often waits in take_failure(), because the other
/// ranks have to hear of it.
class Preconditioner {
 public:
  /// `parameters` are all that is trained. Throws UsageError for options that contradict each
  /// other.
  Preconditioner(const std::vector<LayerSpec>& layers, std::vector<at::Tensor> parameters,
                 KfacOptions options);

  // --- Options, as they are for the current step.

  const KfacOptions& options() const { return options_; }
  /// said() is the options as the caller filled them in. adopt() takes the rest from a strategy;
  /// throws UsageError.
  const KfacOptions& said() const { return said_; }
  void adopt(const plan::Kfac& kfac);
  /// Ranks share its steps no more: goes back to the caller's options.
  void stop_sharing();
  /// KfacOptions::optimizer from now on.
  void set_optimizer(torch::optim::Optimizer& optimizer) { optimizer_ = &optimizer; }

  std::int64_t step() const { return step_; }
  bool factors_due() const;
  bool inverses_due() const;
  double damping() const { return options_.damping->at(step_); }
  /// The damping of this step, a scalar f64 tensor where the weights are.
  at::Tensor damping_there() const;

  const Blocks& blocks() const { return blocks_; }
  Collector& collector() { return collector_; }
  /// Whether a step updates factors and inverses, in place of the options' intervals.
  using Schedule = std::function<plan::CurvatureUpdate(std::int64_t step)>;
  void follow(Schedule schedule);
  CurvatureBlock::Factor factor(std::int32_t f) const;

  /// Whether reports come later and blocks' tasks are done together, as is so on a device.
  bool enqueues() const { return enqueues_; }
  void set_enqueues(bool yes);

  // --- A step.

  KfacStep take();

  /// Throws what went wrong in the passes, or failed too often in earlier steps.
  void check();
  /// Begins a round of the step and undoes what an earlier round left.
  void begin();
  /// Folds this rank's sums into the averages.
  void fold_batches(std::int32_t first_block, std::int32_t last_block);
  /// Folds sums of all ranks: those of a layer once both its sides are there.
  void fold(const std::vector<std::int32_t>& factors, const std::vector<at::Tensor>& sums);
  /// As CurvatureBlock::invert().
  CurvatureBlock::Inverted invert(const std::vector<std::int32_t>& factors,
                                  std::span<const at::Tensor> sent = {},
                                  const CurvatureBlock::Timed& timed = {});
  /// Inverts factors of these blocks that are no matrices, if it is due: diagonals, norm layers' 2
  /// x 2.
  void invert_diagonals(std::span<const std::int32_t> blocks);
  /// Takes inverses that other ranks have computed; there: bool [factors].
  void take_inverses(const std::vector<std::int32_t>& factors, std::span<const at::Tensor> inverses,
                     const at::Tensor& there);
  /// Makes directions of blocks that have gradients. A block without an inverse keeps its gradient.
  void precondition(std::span<const std::int32_t> blocks);
  /// The direction of one block; undefined: it has no gradient.
  CurvatureBlock::Directions direction(std::int32_t block) const;
  /// Takes directions that owners have computed, which are vectors; exist: bool [blocks].
  void take_directions(std::span<const std::int32_t> blocks, const std::vector<at::Tensor>& values,
                       const at::Tensor& exist);
  void clip();
  /// For a step that counts: if the scalar bool tensor `infinite` is true, the means were taken for
  /// zero, and directions are, too.
  void zero_if(const at::Tensor& infinite);
  /// Commits the round. On the CPU undoes it if directions are not finite. Comes before a plan may
  /// give averages and inverses to other owners.
  void keep();
  void drop();
  /// Ranks have agreed to skip the step.
  void skip() { phase_ = Phase::skipped; }
  /// Makes gradients of the directions and ends the step. If it says `skipped`, no .grad counts.
  KfacStep write();

  /// await_gradients() comes in place of keep() if gradients arrive under the next forward pass.
  /// Then take_all() follows once they are there, or end_arriving() if each layer is updated when
  /// its own have arrived.
  void await_gradients();
  void take_all();
  void end_arriving();
  /// Makes the block's .grad its direction, with the damping of a step. Returns whether it is
  /// finite, a scalar bool tensor; if not, it is 0.
  at::Tensor update_late(std::int32_t block, const at::Tensor& damping) const;

  std::exception_ptr take_failure() { return std::exchange(failure_, nullptr); }
  /// The batch that is being collected does not count; the next one replaces it.
  void discard_batch();

  // --- State.

  KfacState save() const;
  /// The part of a block's state that this rank is to hold.
  enum class Holds : std::uint8_t { nothing, averages, inverses };
  using HoldsOfBlock = std::function<Holds(std::size_t block)>;
  void load(const KfacState& state, const HoldsOfBlock& holds);
  /// Averages and inverses alone; a batch that is being collected stays.
  void load_blocks(const KfacState& state, const HoldsOfBlock& holds);
  KfacMemory memory() const;

 private:
  enum class Phase : std::uint8_t {
    open,      // a round is under way, or none has ended: there is nothing to write
    arriving,  // inverses are there, gradients are not
    found,     // all is there
    skipped    // averages and inverses are those of the last step
  };
  /// Directions of blocks of one shape.
  struct Directed {
    std::vector<std::int32_t> members;
    std::vector<CurvatureBlock*> blocks;
    CurvatureBlock::Directions found;
  };
  /// What a step finds about factors and directions.
  enum class Finding : std::uint8_t {
    dropped,       // a batch's factor that is not finite
    not_inverted,  // a factor whose inverse failed
    plain          // a block whose gradient stays as it is
  };
  struct Note {
    Finding what;
    std::vector<std::int32_t> members;  // factors or blocks
    at::Tensor is_so;                   // bool [members]
  };
  struct Round {
    std::map<std::int32_t, at::Tensor> sums;  // by factor: the layer's other side is not there yet
    std::vector<Directed> directed;
    std::vector<Note> notes;
    at::Tensor q, nu;  // f64
  };
  struct SentNotes {
    std::int64_t step;
    std::vector<Note> notes;
  };

  /// The optimizer's in this step.
  double rate() const;
  /// The number of backward passes of a step by which each loss is divided; 1 unless it is given.
  double accumulated() const { return options_.accumulate ? options_.accumulate->at(step_) : 1; }
  void bound_update();
  void warn_of_passes(int passes);

  void begin_step();
  std::vector<CurvatureBlock::Packed> packed(std::span<const std::int32_t> factors,
                                             std::span<const at::Tensor> values) const;
  template <typename Which>
  std::vector<std::int32_t> factors_of(std::span<const std::int32_t> blocks, Which&& which) const;
  std::vector<Directed> alike(std::span<const std::int32_t> blocks) const;
  std::vector<std::int32_t> all_blocks() const;
  void remember();
  void undo();
  void send_notes();
  void hear(KfacStep& report);
  std::string in_words(Finding what, std::int32_t f) const;
  KfacStep end_step(bool counts);

  const KfacOptions said_;  // what the caller filled in
  KfacOptions options_;     // with values for the rest
  torch::optim::Optimizer* optimizer_;
  std::int64_t step_ = 0;
  double last_rate_ = 0;  // of the last step that counted
  Schedule schedule_;
  bool warned_unbound_ = false, warned_passes_ = false;
  Blocks blocks_;
  Collector collector_;
  const std::vector<at::Tensor> parameters_;
  bool enqueues_ = false;
  Phase phase_ = Phase::open;
  Round round_;
  std::vector<CurvatureBlock::Known> before_;  // this round, by block; empty: nothing has changed
  std::deque<SentNotes> sent_;
  LateValues sent_values_;                                    // of `sent_`
  std::map<std::pair<Finding, std::int32_t>, int> in_a_row_;  // by finding and member
  std::exception_ptr failure_;
};

}  // namespace linerate::torch_adapter
