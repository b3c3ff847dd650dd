// What the K-FAC tasks of a Plan do to a model's curvature on this rank. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/kfac/curvature_block.hpp"
#include "linerate/kfac/preconditioner.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/options.hpp"
#include "linerate/torch_adapter/partial_optimizer.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"
#include "linerate/torch_adapter/run_planner.hpp"
#include "linerate/torch_adapter/step_operations.hpp"
#include "linerate/torch_adapter/stream_steps.hpp"

namespace linerate::torch_adapter {

// The places of blocks, factors and directions in a Plan's payloads, and the ranks that compute
// them. Found once for a Plan. Private to torch_adapter.

struct CurvaturePlan {
  CurvaturePlan(std::shared_ptr<const doc::Plan> plan, const Blocks& blocks);

  /// A member of a payload: a factor, or the block of a direction.
  struct Part {
    std::int32_t payload = -1, member = -1;  // -1: it is not sent
    std::int64_t begin = 0, elements = 0;
    std::int64_t status = 0;  // of an inverse: this far from the payload's end
  };
  struct Variant {
    std::vector<std::vector<Part>> payloads;
    std::vector<Part> inverses, directions;  // by factor, by block
  };
  const Variant& of(const doc::TaskGraph& graph) const;

  std::shared_ptr<const doc::Plan> plan;
  /// By block, the ranks that have its task; empty: all.
  using Ranks = std::vector<std::vector<std::int32_t>>;
  Ranks preconditioning, averaging;
  std::vector<Variant> variants;
};

/// Whether gradients arrive under the next forward pass.
bool reaches_next_step(const doc::Plan& plan);

// The facts about a model's K-FAC layers that planners need. Private to torch_adapter.

/// The strategy's K-FAC, completed by the preconditioner's kinds of layers and inverses; absent if
/// neither has it. Throws UsageError if only one of them has it, or if the strategy shares it in a
/// way that training cannot.
std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy, Preconditioner* preconditioner);

/// Layer b belongs to block b. Collective: measures what inverses cost.
SecondOrder second_order_of(const Preconditioner& preconditioner, comm::Communicator& communicator);

/// Stands in a message for the direction of a layer that has no inverse yet; the layer's gradient
/// stays as it is. (A NaN in a direction skips the step.)
inline constexpr double kNoDirection = std::numeric_limits<double>::infinity();

/// The K-FAC tasks of a Plan, between the collector's statistics and the gradients that the
/// optimizer sees:
///   pack-factors       sums of factors and their counts -> payload, which is summed over ranks
///   average-factors    payload, or the rank's own sums, divided -> running averages
///   inverse            averages -> inverse, and into its payload if it is sent; an inverse that is
///                      computed with the next one waits for that one's task
///   unpack-inverses    payload -> inverses of factors that another rank owns
///   precondition       mean gradient -> direction, and into its payload if it is sent; before that
///                      inverts what is no matrix (diagonals, norm layers' 2 x 2), if it is due
///   unpack-directions  payload -> directions of layers that another rank owns
///   clip               <direction, gradient> over all layers -> nu
/// Each is a part of Preconditioner's step, with payloads before and after it.
///
/// An example with three ranks (SPD-KFAC). All ranks sum the factors of layers 1 to 3. Rank 0
/// inverts layer 1's, rank 1 layer 2's and rank 2 layer 3's, and each broadcasts its inverses. The
/// small layer 4 is not worth a message, so every rank inverts its factors alone.
///
/// A factor that was packed may be packed again, because statistics last until the step ends. On a
/// device, inverses and directions that are not sent wait for the first task that needs one of
/// them. Those of one message wait for the last of its tasks. So matrices of one size are computed
/// together.
class CurvatureExchange {
 public:
  /// All arguments outlive this object. Block b of the plans is block b of the preconditioner.
  /// `block_of`: by parameter; -1: of none.
  CurvatureExchange(Preconditioner& preconditioner, PayloadMemory& memory,
                    comm::Communicator& communicator, const StepTensors& tensors,
                    const std::vector<Parameter>& parameters,
                    const std::vector<std::int32_t>& block_of);

  /// The operations of a Plan by name.
  void register_with(exec::StepRunner& runner);
  /// Moves averages and inverses to the plan's owners. Collective, between rounds.
  void set_plan(std::shared_ptr<const doc::Plan> plan);

  /// The state that all ranks hold together, the same on every rank. Collective.
  KfacState save();
  /// Loads of such a state what this rank holds by the plan.
  void load(const KfacState& state);
  /// The same in the middle of a step, which goes on: loads averages and inverses alone.
  void hold(const KfacState& state);

  /// The preconditioner's step, which decides the variant of the Plan that is due.
  std::int64_t step() const { return pre_.step(); }
  void begin_round();
  /// If gradients arrive under the next forward pass, the step waits for them.
  void end_round(bool counts);
  bool enqueues() const { return pre_.enqueues(); }
  /// Turns gradients that arrive under the next forward pass into directions. Made before the step
  /// ends (Preconditioner::end_arriving).
  Preparation late_direction(std::int32_t block) const;

  /// The inverses that this rank has computed in the round, by moments of the runner.
  const std::vector<TimedInverses>& inverses() const { return round_.inverses; }

 private:
  /// Results that tasks leave for later tasks.
  struct Round {
    const CurvaturePlan::Variant* variant = nullptr;
    std::set<std::int32_t> inverted_here, preconditioned_here;  // factors, blocks
    std::vector<std::int32_t> to_invert, to_precondition;       // factors, blocks
    std::vector<TimedInverses> inverses;
  };

  void pack_factors(const doc::TaskGraph& graph, const doc::Task& task);
  void average_factors(const doc::TaskGraph& graph, const doc::Task& task);
  void invert(const doc::TaskGraph& graph, const doc::Task& task);
  void invert_waiting();
  void unpack_inverses(const doc::TaskGraph& graph, const doc::Task& task);
  void precondition(const doc::TaskGraph& graph, const doc::Task& task);
  void precondition_waiting();
  void send_direction(std::int32_t block, const CurvaturePlan::Part& part);
  void unpack_directions(const doc::TaskGraph& graph, const doc::Task& task);
  void clip(const doc::TaskGraph& graph, const doc::Task& task);
  const std::vector<CurvaturePlan::Part>& parts_of(const doc::TaskGraph& graph,
                                                   const doc::Task& task) const;
  /// Whether a member's work waits for another task. `waiting`: the members that wait.
  bool waits(const CurvaturePlan::Part& part, std::span<const std::int32_t> waiting) const;
  /// Does the work while the means that have arrived are the .grads of these blocks.
  void with_means(std::span<const std::int32_t> blocks, const std::function<void()>& work);

  Preconditioner::Holds held_here(std::size_t block) const;
  at::Tensor values_of(const CurvaturePlan::Part& part) const;
  /// The element of a payload that tells whether an inverse in it failed (0: it did not).
  at::Tensor status_of(const CurvaturePlan::Part& part) const;

  Preconditioner& pre_;
  PayloadMemory& memory_;
  comm::Communicator& communicator_;
  const StepTensors& tensors_;
  const std::vector<Parameter>& parameters_;
  const std::vector<std::int32_t>& block_of_;
  std::optional<CurvaturePlan> plan_;
  std::vector<std::unique_ptr<exec::Operation>> operations_;
  exec::StepRunner* runner_ = nullptr;
  Round round_;
};

}  // namespace linerate::torch_adapter
