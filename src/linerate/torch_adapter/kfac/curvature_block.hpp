// The curvature of one layer: statistics, running average, inverse, direction. Private to
// torch_adapter. Knows nothing of steps or ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
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
/// pack_batches(): packed, with its counts -> (summed over ranks) -> update_averages(): divided,
/// into the running average -> invert() -> directions(). Packed is what travels and what is kept:
/// `groups` upper triangles (triangle_packing.hpp); of an embedding's A the diagonal; of a norm
/// layer's G [3, units]: scale², scale shift, shift². All in f64 if the layer is, else in f32.
///
/// What a step does with factors it does with several at once, and what is decided by their values
/// is a tensor that chooses: a device is asked for few kernels and for no value. On the CPU each
/// factor is computed by itself, as its caches want it.
class CurvatureBlock {
 public:
  /// A is a x a (bias included), G is g x g. embedding: a words, g features. unit_wise: a = 0, g
  /// units.
  struct Shape {
    BlockKind kind = BlockKind::kronecker;
    std::int64_t a = 0, g = 0;
    int groups = 1;
    auto operator<=>(const Shape&) const = default;
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
  /// Of a direction.
  std::int64_t direction_elements() const;
  /// Whether the factor consists of matrices, whose inverses take a while.
  bool is_dense(FactorSide side) const;
  bool is_eigen(FactorSide side) const {
    return options_.method == InverseMethod::eigen && is_dense(side);
  }

  /// One of a block's factors.
  struct Factor {
    CurvatureBlock* block;
    FactorSide side;
  };
  /// The same in packed form: as a sum, then its doc::kFactorCounts; or as an inverse.
  struct Packed {
    Factor factor;
    at::Tensor values;  // a vector without gaps, of any floating type
  };

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
  /// The batches' sums and counts, into `values`; an unused layer's sum is 0.
  static void pack_batches(std::span<const Packed> sums);
  at::Tensor packed_batch(FactorSide side);
  /// The sum divided: the factor of this rank alone. Zeros if nothing was counted.
  at::Tensor batch_factor(FactorSide side);
  void discard_batch();

  // --- Running averages.

  /// average = rho average + (1 - rho) sum / count, rho = min(1 - 1/k, decay) in the k-th update:
  /// it begins with the first factor, not with an identity that would stay in it. Not of a layer
  /// that nobody used on all of the sides that are here, nor of a sum that is not finite. Which of
  /// them that was, and the layer used: bool [sums]. `keep_inverted`: keeps for save() what the
  /// inverse in use was computed from, until there is a new one.
  static at::Tensor update_averages(std::span<const Packed> sums, double decay,
                                    bool keep_inverted = false);
  /// Undefined, or zeros, before the first update.
  const at::Tensor& average(FactorSide side) const { return of(side).known.average; }

  // --- Inverses.

  /// Bool [factors].
  struct Inverted {
    at::Tensor succeeded, failed;  // neither: there is no average of both sides
  };
  /// Runs the work of some factors, by their places in the span.
  using Timed =
      std::function<void(std::span<const std::size_t> factors, const std::function<void()>& work)>;
  /// Each in one try; it needs averages of both sides, since pi is the root of their traces' ratio.
  /// If it fails, the old inverse stays, and the next try has 10 times the damping, up to 1000;
  /// each that does not fail has a tenth again, down to what is given. damping: f64, of no
  /// dimensions. On a device matrices of one size are inverted together.
  static Inverted invert(std::span<const Factor> factors, const at::Tensor& damping,
                         const Timed& timed = {});
  at::Tensor packed_inverse(FactorSide side) const;
  /// Those that other ranks have computed from the averages that are here, too, if there (bool
  /// [inverses]). Which were not, though there are averages: bool [inverses].
  static at::Tensor take_inverses(std::span<const Packed> inverses, const at::Tensor& there,
                                  const at::Tensor& damping);
  /// Of all sides: bool, of no dimensions.
  at::Tensor has_inverse() const;

  // --- Directions.

  /// Of n blocks of one shape, by block in dimension 0. A layer's gradient is the matrix [groups,
  /// g, a], the bias's as its last column; of an embedding [1, a, g], of a norm layer [1, 2,
  /// units].
  struct Directions {
    at::Tensor gradients,
        directions;       // without an inverse: 0, or NaN if the gradient is not finite
    at::Tensor exist;     // bool [n]
    at::Tensor products;  // f64 [n]: <direction, gradient>
  };
  using Alike = std::span<CurvatureBlock* const>;
  /// (F + damping)^-1 gradient, of weights that have gradients; `damping`, f64 of no dimensions,
  /// counts if it is exact, else what the inverses were computed with.
  static Directions directions(Alike blocks, const at::Tensor& damping);
  /// What owners have computed, vectors; `exist`: bool [n].
  static Directions taken_directions(Alike blocks, const std::vector<at::Tensor>& values,
                                     const at::Tensor& exist);
  virtual at::Tensor gradients(Alike blocks) const = 0;
  /// .grad = direction, in the memory that .grad has; `directions` as Directions has them.
  static void write(Alike blocks, const at::Tensor& directions);

  // --- State and bookkeeping.

  /// What directions are made with. Dense: matrix [groups, d, d]; for eigen its columns are the
  /// vectors, and values [groups, d]. Else [1, elements], of this layer's kind.
  struct Inverse {
    at::Tensor matrix, values;
  };
  /// What a side knows besides the batch that is being collected. Scalars are tensors of no
  /// dimensions where the weight is.
  struct Curvature {
    at::Tensor average, inverted;
    Inverse inverse;     // undefined: none was tried yet; zeros stand for one that failed
    at::Tensor updates;  // f64
    at::Tensor exists;   // bool: there is an inverse
    at::Tensor damping;  // f64: of the inverse in use
    at::Tensor raised;   // f64: how often the next inverse's damping is taken times 10
  };
  /// A state to go back to. Shares memory: changing a tensor means making a new one.
  using Known = std::array<Curvature, 2>;
  Known known() const { return {sides_[0].known, sides_[1].known}; }
  void set_known(const Known& known);

  KfacState::Factor save(FactorSide side) const;
  /// The inverses are recomputed once both sides are loaded, in restore_inverses().
  void load(FactorSide side, const KfacState::Factor& state);
  void restore_inverses();

  struct Memory {
    std::int64_t sums = 0, averages = 0, inverses = 0;  // bytes
  };
  Memory memory() const;

 protected:
  CurvatureBlock(LayerSpec layer, Shape shape, const BlockOptions& options);

  /// The sum of this batch, zeros at first: [groups, d, d] or packed; and its rows or terms.
  at::Tensor& sum(FactorSide side);
  double& count(FactorSide side) { return of(side).count; }
  /// More to count that only the device knows: f64, of no dimensions.
  void count_there(FactorSide side, const at::Tensor& more);
  /// Of n packed factors that are no matrices, [n, elements]; damping [n, 1], in their type: lambda
  /// for a norm layer, else factored. What precondition() takes as the matrix.
  virtual at::Tensor diagonal_inverses(const at::Tensor& packed,
                                       const at::Tensor& damping) const = 0;
  virtual at::Tensor precondition(const at::Tensor& gradients, const Inverse& a, const Inverse& g,
                                  const at::Tensor& damping) const = 0;
  /// Of one block's direction: parameters and what belongs to them, in their shape.
  virtual std::vector<std::pair<at::Tensor, at::Tensor>> parts(
      const at::Tensor& direction) const = 0;
  at::Tensor to_dtype(const at::Tensor& tensor) const { return tensor.detach().to(dtype_); }
  /// Of this block's type and device.
  at::TensorOptions tensor_options() const { return layer_.weight.options().dtype(dtype_); }

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
  /// The other side, or this one if the layer has no other.
  FactorSide partner(FactorSide side) const;
  /// What the batch's sum is divided by.
  double divisor(FactorSide side) const;
  at::Tensor scalar(double value) const;
  Inverse unpacked_inverse(FactorSide side, const at::Tensor& packed) const;
  /// Curvature::inverse of several blocks, one after the other; on a device they are views of it
  /// from now on.
  static Inverse joined_inverses(Alike blocks, FactorSide side);

  /// Packed averages that inverses are computed from, by factor: its own, and of its partner.
  struct Sources {
    std::vector<at::Tensor> own, partner;
  };
  struct Tried {
    std::vector<Inverse> inverses;
    std::vector<at::Tensor> succeeded;  // bool, of no dimensions
  };
  static std::vector<at::Tensor> mean_eigenvalues(std::span<const Factor> factors,
                                                  std::span<const at::Tensor> packed);
  static std::vector<at::Tensor> dampings(std::span<const Factor> factors, const Sources& sources,
                                          const at::Tensor& lambdas);
  static Tried try_inverses(std::span<const Factor> factors, const Sources& sources,
                            const at::Tensor& lambdas, const Timed& timed);
  static void try_alike(std::span<const Factor> factors, const std::vector<at::Tensor>& own,
                        const std::vector<at::Tensor>& damping, std::span<const std::size_t> set,
                        Tried& tried);
  static void choose(Inverse& inverse, const Inverse& found, const at::Tensor& there);
  static at::Tensor have_averages(std::span<const Factor> factors);
  static void take(std::span<const Factor> factors, const std::vector<Inverse>& found,
                   const at::Tensor& there, const at::Tensor& lambdas);

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
