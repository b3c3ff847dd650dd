// What the K-FAC tasks of a Plan do to a model's curvature on this rank. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "linerate/doc/plan.hpp"
#include "linerate/exec/operation.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"

namespace linerate::torch_adapter {

/// Between the collector's statistics and the gradients that the optimizer sees:
///   pack-factors       share * batch factors -> payload, which is summed over ranks
///   average-factors    payload, or the rank's own batch factors -> running averages
///   inverse            averages -> inverse, and into its payload where it is sent
///   unpack-inverses    payload -> inverses of factors that another rank owns
///   precondition       mean gradient -> direction, and into its payload where it is sent
///   unpack-directions  payload -> directions of layers that another rank owns
///   clip               <direction, gradient> over all layers -> nu
/// Directions stay beside the gradients until write(). A factor that was packed may be packed
/// again: statistics last until the step ends.
class CurvatureExchange {
 public:
  struct Step {
    /// What this rank's statistics count in a sum over ranks.
    std::function<double()> share;
    /// Whether the step counts, as all ranks have agreed.
    std::function<bool()> accepted;
    /// Makes a block's .grads the means that have arrived.
    std::function<void(std::size_t block)> take_means;
  };

  /// All arguments outlive this object. Block b of the plans is block b of the preconditioner.
  CurvatureExchange(Preconditioner& preconditioner, PayloadMemory& memory, Step step);

  /// The operations of a Plan by name.
  void register_with(exec::Runner& runner);
  void set_plan(std::shared_ptr<const doc::Plan> plan) { plan_ = std::move(plan); }

  /// A round of a step: what an earlier round of it left is undone.
  void begin_round();
  /// The step counted: its directions are what write() writes.
  void keep() { before_.clear(); }
  /// It did not: averages and inverses are those of the step before.
  void drop();

  /// Of the preconditioner: which of the Plan's variants is due.
  std::int64_t step() const { return preconditioner_.step(); }
  bool has_directions() const { return has_directions_; }
  /// .grad = nu direction in every layer that has one; ends the step. Throws what the step's
  /// operations failed with.
  KfacStep write();

 private:
  using Tasks = void (CurvatureExchange::*)(const doc::TaskGraph&, const doc::Task&);
  void add(exec::Runner& runner, const char* name, Tasks tasks);

  void pack_factors(const doc::TaskGraph& graph, const doc::Task& task);
  void average_factors(const doc::TaskGraph& graph, const doc::Task& task);
  void invert(const doc::TaskGraph& graph, const doc::Task& task);
  void unpack_inverses(const doc::TaskGraph& graph, const doc::Task& task);
  void precondition(const doc::TaskGraph& graph, const doc::Task& task);
  void unpack_directions(const doc::TaskGraph& graph, const doc::Task& task);
  void clip(const doc::TaskGraph& graph, const doc::Task& task);

  CurvatureBlock& block_of(std::int32_t factor) const;
  /// visit(member, its part of the payload)
  template <typename Visit>
  void for_members(const doc::TaskGraph& graph, std::int32_t payload, Visit&& visit);
  /// The part of a member of a payload of this content; undefined where nothing of it is sent.
  at::Tensor part_of(const doc::TaskGraph& graph, doc::Content content, std::int32_t member,
                     std::int32_t* payload = nullptr);
  std::int64_t elements_of(doc::Content content, std::int32_t member) const;
  void remember(std::int32_t factor);
  /// What `work` throws ends the step on every rank alike, in write().
  template <typename Work>
  void guarded(Work&& work);

  Preconditioner& preconditioner_;
  PayloadMemory& memory_;
  Step step_;
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<std::unique_ptr<exec::Operation>> operations_;
  std::map<std::int32_t, KfacState::Factor> before_;            // by factor
  std::set<std::int32_t> inverted_here_, preconditioned_here_;  // factors, blocks; of this round
  std::vector<std::optional<Preconditioner::Direction>> directions_;
  std::optional<double> nu_;
  double q_ = 0;
  bool has_directions_ = false;
  std::exception_ptr failure_;
};

}  // namespace linerate::torch_adapter
