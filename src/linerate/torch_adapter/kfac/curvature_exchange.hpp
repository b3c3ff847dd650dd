// What the K-FAC tasks of a Plan do to a model's curvature on this rank. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/operation.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/torch_adapter/delayed_updates.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"

namespace linerate::torch_adapter {

/// Between the collector's statistics and the gradients that the optimizer sees:
///   pack-factors       sums of factors and what they count -> payload, which is summed over ranks
///   average-factors    payload, or the rank's own sums, divided -> running averages
///   inverse            averages -> inverse, and into its payload if it is sent
///   unpack-inverses    payload -> inverses of factors that another rank owns
///   precondition       mean gradient -> direction, and into its payload if it is sent; inverts
///                      what is no matrix (diagonals, norm layers' 2 x 2) first, if it is due
///   unpack-directions  payload -> directions of layers that another rank owns
///   clip               <direction, gradient> over all layers -> nu
///   pack-losses        this rank's part of the loss's change by the last update -> payload
///   take-losses        payload, summed -> damping
///   quadratic-model    directions and this rank's batch -> payload, its part of the curvature
///   minimise           payload, summed -> the update
/// Directions stay apart from the gradients until write(). A factor that was packed may be packed
/// again: statistics last until the step ends.
class CurvatureExchange {
 public:
  struct Step {
    /// What this rank's batch counts in a sum over ranks.
    std::function<double()> share;
    /// Whether the step counts, as all ranks have agreed.
    std::function<bool()> accepted;
    /// Makes a block's .grads the means that have arrived.
    std::function<void(std::size_t block)> take_means;
  };

  /// All arguments outlive this object. Block b of the plans is block b of the preconditioner.
  CurvatureExchange(Preconditioner& preconditioner, PayloadMemory& memory,
                    comm::Communicator& communicator, Step step);

  /// The operations of a Plan by name.
  void register_with(exec::Runner& runner);
  /// Moves averages and inverses to the plan's owners. Collective, between rounds.
  void set_plan(std::shared_ptr<const doc::Plan> plan);

  /// What all ranks hold together, the same on every rank. Collective.
  KfacState save();
  /// Loads of such a state what this rank holds by the plan.
  void load(const KfacState& state);
  /// The same in the middle of a step, which goes on: averages and inverses alone.
  void hold(const KfacState& state);

  /// Begins a round of a step and undoes what an earlier round left.
  void begin_round();
  /// Commits the round: write() writes its directions. If they are not finite, or the round did not
  /// count (drop()), averages and inverses are those of the last step. If gradients arrive under
  /// the next forward pass, there are no directions yet: call take_all() once all have arrived, or
  /// end_late().
  void keep();
  void take_all();
  void drop();
  /// Notes that ranks agreed to skip the step; write() reports it.
  void note_skipped() { skipped_ = true; }
  /// Drops what was collected for the step, whether it counted or not.
  void end_step() { preconditioner_.discard_batch(); }
  /// Why this rank's factors or inverses cannot go on, once, so that all ranks hear of it.
  std::exception_ptr take_failure() { return std::exchange(failure_, nullptr); }

  /// Seconds of the inverses that this rank has computed in the round, by factor; -1: none.
  const std::vector<double>& inverse_s() const { return inverse_s_; }

  /// Of the preconditioner: which of the Plan's variants is due.
  std::int64_t step() const { return preconditioner_.step(); }
  /// .grad = nu direction in every layer that has one; ends the step. If it says `skipped`, no
  /// .grad counts.
  KfacStep write();

  /// Instead of write() if gradients arrive under the next forward pass: ends the step;
  /// late_direction(), called before, turns what arrives into directions. Inverses stay those of
  /// this step until all has arrived.
  void end_late();
  Preparation late_direction(std::int32_t block) const;

 private:
  using Tasks = void (CurvatureExchange::*)(const doc::TaskGraph&, const doc::Task&);
  void add(exec::Runner& runner, const char* name, Tasks tasks);

  void pack_factors(const doc::TaskGraph& graph, const doc::Task& task);
  void average_factors(const doc::TaskGraph& graph, const doc::Task& task);
  /// The sum over ranks; folded with that of the layer's other side.
  void receive_sum(std::int32_t factor, const at::Tensor& part);
  void invert(const doc::TaskGraph& graph, const doc::Task& task);
  void unpack_inverses(const doc::TaskGraph& graph, const doc::Task& task);
  void precondition(const doc::TaskGraph& graph, const doc::Task& task);
  void unpack_directions(const doc::TaskGraph& graph, const doc::Task& task);
  /// From its part of a payload.
  void receive_direction(std::size_t block, const at::Tensor& part);
  void clip(const doc::TaskGraph& graph, const doc::Task& task);
  void pack_losses(const doc::TaskGraph& graph, const doc::Task& task);
  void take_losses(const doc::TaskGraph& graph, const doc::Task& task);
  void quadratic_model(const doc::TaskGraph& graph, const doc::Task& task);
  void minimise(const doc::TaskGraph& graph, const doc::Task& task);

  void invert_diagonals(std::int32_t block);
  Preconditioner::Holds held_here(std::size_t block) const;
  double damping_with_losses() const;

  CurvatureBlock& block_of(std::int32_t factor) const;
  /// visit(member, its part of the payload)
  template <typename Visit>
  void for_members(const doc::TaskGraph& graph, std::int32_t payload, Visit&& visit);
  /// The part of a member of a payload of this content; undefined if nothing of it is sent.
  at::Tensor part_of(const doc::TaskGraph& graph, doc::Content content, std::int32_t member,
                     std::int32_t* payload = nullptr);
  doc::Content inverse_content() const;
  std::int64_t elements_of(doc::Content content, std::int32_t member) const;
  /// Of an inverse that a payload holds: one element.
  at::Tensor status_of(const doc::TaskGraph& graph, std::int32_t payload, std::int32_t factor);
  KfacStep report() const;
  KfacStep skip();
  /// If this rank alone does `work`, what it throws waits for the flags of the next step
  /// (take_failure()), with which it ends the run on every rank.
  template <typename Work>
  void guarded(Work&& work);
  void add_products();
  void keep_or_undo();

  Preconditioner& preconditioner_;
  PayloadMemory& memory_;
  comm::Communicator& communicator_;
  Step step_;
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<std::unique_ptr<exec::Operation>> operations_;
  std::set<std::int32_t> inverted_here_, preconditioned_here_;  // factors, blocks; of this round
  std::vector<std::array<at::Tensor, 2>> sums_;  // [blocks] views of payloads, of this round
  std::vector<std::optional<Preconditioner::Direction>> directions_;
  std::vector<double> inverse_s_;
  std::optional<double> nu_;
  QuadraticModel model_;  // Levenberg-Marquardt
  double share_ = 1;      // of this rank's batch in the last step whose model was made
  double q_ = 0;
  bool has_directions_ = false, skipped_ = false;
  bool late_ = false;           // gradients arrive under the next forward pass
  std::exception_ptr failure_;  // this rank's
  std::string misuse_;          // that all ranks have found
};

}  // namespace linerate::torch_adapter
