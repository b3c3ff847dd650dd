// The curvature of one layer: statistics, running average, inverse, direction. Private to
// torch_adapter. Knows nothing of steps, ranks or other layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/block.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"
#include "linerate/torch_adapter/kfac/kfac_state.hpp"
#include "linerate/torch_adapter/kfac/layer_input.hpp"
#include "linerate/torch_adapter/kfac/layer_spec.hpp"

namespace linerate::torch_adapter {

using doc::BlockKind;
using doc::FactorSide;

struct BlockOptions {
  InverseMethod method = InverseMethod::cholesky;
  SharedPositions shared_positions = SharedPositions::expand;
  int conv_subsampling = 1;
};

/// A factor goes this way: add_input() or add_gradient() of every use of the layer -> sum ->
/// pack_batch(): packed, with its counts -> (summed over ranks) -> divided -> update_average() ->
/// compute_inverse(). Packed is what travels and what is kept: `groups` upper triangles
/// (triangle_packing.hpp); of an embedding's A the diagonal; of a norm layer's G [3, units]:
/// scale², scale shift, shift². All in f64 if the layer is, else in f32.
class CurvatureBlock {
 public:
  /// A is a x a (bias included), G is g x g. embedding: a words, g features. unit_wise: a = 0, g
  /// units.
  struct Shape {
    BlockKind kind = BlockKind::kronecker;
    std::int64_t a = 0, g = 0;
    int groups = 1;
  };

  virtual ~CurvatureBlock() = default;
  CurvatureBlock(const CurvatureBlock&) = delete;
  CurvatureBlock& operator=(const CurvatureBlock&) = delete;

  const LayerSpec& layer() const { return layer_; }
  const Shape& shape() const { return shape_; }
  at::ScalarType dtype() const { return dtype_; }
  std::int64_t dim(FactorSide side) const { return side == FactorSide::a ? shape_.a : shape_.g; }
  std::int64_t packed_elements(FactorSide side) const;
  /// Of packed_inverse(): packed_elements(), except for eigen's matrices, which are not symmetric.
  std::int64_t inverse_elements(FactorSide side) const;
  /// Of gradient() and precondition().
  std::int64_t direction_elements() const;

  // --- A batch's statistics, in the units of one loss term.

  /// Called before the operator's kernel.
  virtual void add_input(const LayerInput& input) = 0;
  /// `gradient` of the operator's output times `scale` is that of a single loss term (or of the
  /// sum, if the loss is one); `input` as in add_input(), its tensor only if keeps_input().
  virtual void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) = 0;
  virtual bool keeps_input() const { return false; }
  /// Loss terms of the gradients that are added.
  void count_terms(double terms) { of(FactorSide::g).count += terms; }
  /// Loss terms of the step, whether they use the layer or not: G is divided by their number, since
  /// those that do not use it have no gradient here. As many as were counted, unless there are
  /// more.
  void count_step_terms(double terms) { step_terms_ += terms; }
  bool has_batch(FactorSide side) const { return of(side).sum.defined(); }
  /// The batch's sum and its doc::kFactorCounts; an unused layer's sum is 0. `out` is a vector
  /// without gaps, of any floating type.
  void pack_batch(FactorSide side, const at::Tensor& out) const;
  at::Tensor packed_batch(FactorSide side) const;
  /// The sum divided: the factor of this rank alone. Zeros if nothing was counted.
  at::Tensor batch_factor(FactorSide side) const;
  void discard_batch();

  // --- Running averages.

  /// average = rho average + (1 - rho) packed, rho = min(1 - 1/k, decay) in the k-th update: it
  /// begins with the first factor, not with an identity that would stay in it. `keep_inverted`:
  /// keeps for save() what the inverse in use was computed from, until there is a new one.
  void update_average(FactorSide side, const at::Tensor& packed, double decay,
                      bool keep_inverted = false);
  /// Undefined before the first update.
  const at::Tensor& average(FactorSide side) const { return of(side).known.average; }

  // --- Inverses.

  /// False if every attempt failed, or a factor is missing: the inverse stays. Both sides must have
  /// an average: pi is the root of their traces' ratio.
  bool compute_inverse(FactorSide side, double damping);
  at::Tensor packed_inverse(FactorSide side) const;
  /// One that another rank has computed with this damping from the average that is here, too.
  void set_packed_inverse(FactorSide side, const at::Tensor& packed, double damping);
  /// Whether the factor consists of matrices, whose inverses take a while.
  bool is_dense(FactorSide side) const;
  bool has_inverse() const;

  // --- The same without a look at values, which a device computes later: what would be decided by
  // them is a bool of no dimensions there, and the damping f64 of none. A block's averages and
  // inverses go one way or the other.

  /// update_average() if `used` (bool) and all of `packed` is finite. Returns whether it was
  /// dropped for that it is not.
  at::Tensor enqueue_average(FactorSide side, const at::Tensor& packed, const at::Tensor& used,
                             double decay, bool keep_inverted);
  /// compute_inverse() in one try: if it fails, the next one has 10 times the damping, up to 1000,
  /// and each that does not fail a tenth, down to what is given. Returns whether there is a new
  /// one, and whether there would be but for a failure.
  struct Enqueued {
    at::Tensor succeeded, failed;
  };
  Enqueued enqueue_inverse(FactorSide side, const at::Tensor& damping);
  /// The same of several factors in one call of the solver: dense ones, by Cholesky's
  /// decomposition, of one size and one matrix each.
  struct Invertible {
    CurvatureBlock* block;
    FactorSide side;
  };
  static std::vector<Enqueued> enqueue_inverses(std::span<const Invertible> factors,
                                                const at::Tensor& damping);
  /// set_packed_inverse() if `there` (bool).
  void enqueue_taken_inverse(FactorSide side, const at::Tensor& packed, const at::Tensor& there,
                             const at::Tensor& damping);
  /// has_inverse(); precondition() is of no use without.
  at::Tensor inverse_there() const;

  // --- Directions.

  /// The layer's .grad as the matrix [groups, g, a], the bias's as its last column; of an embedding
  /// [a, g], of a norm layer [2, units]. Undefined if the weight has none.
  virtual at::Tensor gradient() const = 0;
  /// (F + damping)^-1 gradient; `damping`, f64 of no dimensions, counts if it is exact, else what
  /// the inverses were computed with. Needs has_inverse().
  virtual at::Tensor precondition(const at::Tensor& gradient, const at::Tensor& damping) const = 0;
  at::Tensor precondition(const at::Tensor& gradient, double damping) const;
  /// .grad = nu direction, in the memory that .grad has.
  virtual void write(const at::Tensor& direction, double nu) const = 0;

  // --- State and bookkeeping.

  /// What precondition() multiplies with. Dense: matrix [groups, d, d]; for eigen its columns are
  /// the vectors, and values [groups, d]. Else matrix is the vector or table of this layer's kind.
  struct Inverse {
    at::Tensor matrix, values;
  };
  /// What a side knows besides the batch that is being collected.
  struct Curvature {
    std::int64_t updates = 0;
    at::Tensor average, inverted;
    std::optional<Inverse> inverse;
    double damping = 0;
    int failures = 0, dropped = 0;
    /// Where values are not read: `updates`, `damping` and `inverse.has_value()`, which do not
    /// count there, and how often the next inverse's damping is taken times 10. Undefined: not yet.
    at::Tensor updates_there, damping_there, inverse_there, raised_there;  // bool the third, f64
  };
  /// A state to go back to. Shares memory: changing a tensor means making a new one.
  const Curvature& curvature(FactorSide side) const { return of(side).known; }
  void set_curvature(FactorSide side, Curvature known) { of(side).known = std::move(known); }

  KfacState::Factor save(FactorSide side) const;
  /// The inverses are recomputed once both sides are loaded, in restore_inverses().
  void load(FactorSide side, const KfacState::Factor& state);
  void restore_inverses();

  /// In a row: batches that were not finite, inverses that failed.
  int& failures(FactorSide side) { return of(side).known.failures; }
  int& dropped(FactorSide side) { return of(side).known.dropped; }

  struct Memory {
    std::int64_t sums = 0, averages = 0, inverses = 0;  // bytes
  };
  Memory memory() const;

 protected:
  /// Packed averages that inverses are computed from.
  struct Sources {
    at::Tensor a, g;
  };

  CurvatureBlock(LayerSpec layer, Shape shape, const BlockOptions& options);

  bool is_eigen(FactorSide side) const {
    return options_.method == InverseMethod::eigen && is_dense(side);
  }
  /// The sum of this batch, zeros at first: [groups, d, d] or packed; and its rows or terms.
  at::Tensor& sum(FactorSide side);
  double& count(FactorSide side) { return of(side).count; }
  /// More to count that only the device knows: f64, of no dimensions.
  void count_there(FactorSide side, const at::Tensor& more);
  /// Absent if it failed.
  virtual std::optional<Inverse> invert(FactorSide side, const Sources& sources,
                                        double damping) const;
  /// In one try, without a look at values; `damping`: f64, of no dimensions.
  struct Tried {
    Inverse inverse;
    at::Tensor succeeded;  // bool, of no dimensions
  };
  virtual Tried try_inverse(FactorSide side, const Sources& sources,
                            const at::Tensor& damping) const;
  /// gamma pi of A, gamma / pi of G, [groups] f64; pi² = (tr A / a) / (tr G / g).
  at::Tensor factored_damping(FactorSide side, const Sources& sources,
                              const at::Tensor& damping) const;
  const Inverse& inverse(FactorSide side) const { return *of(side).known.inverse; }
  at::Tensor to_dtype(const at::Tensor& tensor) const { return tensor.detach().to(dtype_); }
  /// Of this block's type and device.
  at::TensorOptions tensor_options() const { return layer_.weight.options().dtype(dtype_); }
  /// .grad = nu direction, if the parameter is there and has one.
  static void write_part(const at::Tensor& parameter, const at::Tensor& direction, double nu);

  const BlockOptions options_;

 private:
  struct Side {
    at::Tensor sum;
    double count = 0;
    at::Tensor count_there;  // besides; undefined: nothing
    Curvature known;
  };
  Side& of(FactorSide side) { return sides_[to_index(side)]; }
  const Side& of(FactorSide side) const { return sides_[to_index(side)]; }
  /// What the batch's sum is divided by.
  double divisor(FactorSide side) const;
  at::Tensor mean_eigenvalues_of(FactorSide side, const at::Tensor& packed) const;
  Inverse unpacked_inverse(FactorSide side, const at::Tensor& packed) const;
  Curvature& decided_there(FactorSide side);
  /// Whether both averages are there: bool, of no dimensions.
  at::Tensor averages_there();
  at::Tensor raised_damping(FactorSide side, const at::Tensor& damping) const;
  Enqueued enqueue_tried(FactorSide side, const Tried& tried, const at::Tensor& known,
                         const at::Tensor& damping);
  void enqueue_choice(FactorSide side, const Inverse& found, const at::Tensor& there,
                      const at::Tensor& damping);

  const LayerSpec layer_;
  const Shape shape_;
  const at::ScalarType dtype_;
  std::array<Side, 2> sides_;
  double step_terms_ = 0;
};

/// The block of a layer's kind.
std::unique_ptr<CurvatureBlock> make_block(const LayerSpec& layer, const BlockOptions& options);
CurvatureBlock::Shape block_shape(const LayerSpec& layer);

}  // namespace linerate::torch_adapter
