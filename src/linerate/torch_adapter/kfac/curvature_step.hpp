// A step of K-FAC on this rank, alone or as one of several: its parts, and what it has come to.
// Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "linerate/torch_adapter/kfac/preconditioner.hpp"

namespace linerate::torch_adapter {

/// take() is the step of a rank alone. It calls what the tasks of a Plan call where ranks share
/// their steps, in this order:
///
///     check();                                      // refuses a batch
///     begin();
///     fold(b) | fold(b, sums); invert(b, side)      // if they are due
///     invert_diagonals(b); precondition(b) | take_direction(b, values)
///     clip()
///     keep() | drop()                               // whether the round counts
///     write()
///
/// What this rank cannot compute waits in take_failure(): other ranks have to hear of it.
class CurvatureStep {
 public:
  /// `parameters` are all that is trained.
  CurvatureStep(Preconditioner& preconditioner, std::vector<at::Tensor> parameters)
      : preconditioner_(preconditioner), parameters_(std::move(parameters)) {}

  Preconditioner& preconditioner() { return preconditioner_; }

  /// Throws what went wrong in the passes.
  void check() const;
  /// Begins a round of the step and undoes what an earlier round left.
  void begin();
  /// This rank's sums, or those of all ranks.
  void fold(std::size_t block);
  void fold(std::size_t block, const std::array<at::Tensor, 2>& sums);
  /// Whether there is a new inverse.
  bool invert(std::size_t block, FactorSide side);
  /// The same where values are not read (Preconditioner::enqueues): whether there is a new inverse
  /// is a bool there.
  at::Tensor enqueue_inverse(std::size_t block, FactorSide side) {
    return preconditioner_.enqueue_inverse(block, side);
  }
  void enqueue_inverses(std::span<const std::int32_t> factors) {
    preconditioner_.enqueue_inverses(factors);
  }
  /// What is no matrix has no task of its own; nothing if inverses are not due.
  void invert_diagonals(std::size_t block);
  /// A layer without inverses or gradient gets no direction: its gradient stays as it is.
  void precondition(std::size_t block);
  /// What an owner has computed: of any type and shape.
  void take_direction(std::size_t block, const at::Tensor& values);
  /// `exists`: bool, there.
  void enqueue_taken_direction(std::size_t block, const at::Tensor& values,
                               const at::Tensor& exists);
  const std::optional<Preconditioner::Direction>& direction(std::size_t block) {
    return open().directions[block];
  }
  void clip();

  /// Commits the round, or undoes it if directions are not finite. Before a plan may give averages
  /// and inverses other owners.
  void keep();
  void drop();
  /// Where values are not read, of a step that counts: `infinite` (bool, of no dimensions) says
  /// whether the means were taken for zero, and then directions are, too.
  void zero_if(const at::Tensor& infinite);
  /// In place of keep() if gradients arrive under the next forward pass: take_all() once they are
  /// there, or end_arriving() if each layer is updated when its own are.
  void await_gradients();
  void take_all();
  void end_arriving();
  /// Ranks have agreed to skip the step.
  void skip() { state_ = Skipped{report()}; }
  /// Makes gradients of the directions and ends the step. If it says `skipped`, no .grad counts.
  KfacStep write();

  /// A whole step of a rank alone. If it throws, the next batch replaces this one.
  KfacStep take();

  /// Why this rank's factors or inverses cannot go on, once.
  std::exception_ptr take_failure() { return std::exchange(failure_, nullptr); }

 private:
  using Directions = std::vector<std::optional<Preconditioner::Direction>>;
  /// A round is under way, or none has ended: there is nothing to write.
  struct Open {
    Directions directions;
  };
  /// Inverses are there, gradients are not.
  struct Arriving {};
  /// All is there and finite.
  struct Found {
    Directions directions;
    KfacStep report;
    at::Tensor q = {}, nu = {};  // where values are not read
  };
  /// Averages and inverses are those of the last step.
  struct Skipped {
    KfacStep report;
  };

  template <typename Work>
  void guarded(Work&& work);
  Open& open() { return std::get<Open>(state_); }
  double product() const;
  /// From Open to Found, or to Skipped without nu.
  void close(double q, std::optional<double> nu);
  at::Tensor product_there() const;
  void enqueue_close(const at::Tensor& q, const at::Tensor& nu);
  void write_directions(const Found& found);
  void enqueue_directions(const Found& found);
  KfacStep report() const;

  Preconditioner& preconditioner_;
  const std::vector<at::Tensor> parameters_;
  std::variant<Open, Arriving, Found, Skipped> state_;
  std::exception_ptr failure_;
};

}  // namespace linerate::torch_adapter
