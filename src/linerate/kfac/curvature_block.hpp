// One layer as K-FAC keeps it: statistics, running average, inverse, direction. Private to
// torch_adapter. It has no notion of steps or ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/block.hpp"
#include "linerate/kfac/counted_positions.hpp"
#include "linerate/kfac/kfac_options.hpp"
#include "linerate/kfac/kfac_report.hpp"

namespace linerate::torch_adapter {

using doc::BlockKind;
using doc::FactorSide;

struct BlockOptions {
  InverseMethod method = InverseMethod::cholesky;
  SharedPositions shared_positions = SharedPositions::expand;
  int conv_subsampling = 1;
};

/// A factor goes this way. add_input() or add_gradient() of every use of the layer gives a sum.
/// pack_batches() packs it with its counts, and ranks may add up packed sums. update_averages()
/// divides it and takes it into the running average. invert() inverts the average, and directions()
/// multiplies gradients by the inverses.
///
/// Packed is the form that is sent and kept: `groups` upper triangles (factor_inverse.hpp). An
/// embedding's A is its diagonal. A norm layer's G is [3, units]: scale², scale shift, shift². All
/// are f64 if the layer is, else f32.
///
/// An example with three ranks, of one element of A. Their sums are 6, 9 and 15 over 2, 3 and 5
/// rows. Packed and added they are 30 over 10. All ranks divide and get 3, which is the mean over
/// all rows and not over the ranks' means.
///
/// A step handles several factors at once. Decisions that depend on values are tensors that choose
/// (at::where), so a device gets few kernels and the host reads no value. On the CPU each factor is
/// computed by itself, as its caches want it.
class CurvatureBlock {
 public:
  CurvatureBlock(const LayerSpec& layer, const BlockOptions& options);
  virtual ~CurvatureBlock() = default;
  CurvatureBlock(const CurvatureBlock&) = delete;
  CurvatureBlock& operator=(const CurvatureBlock&) = delete;

  const LayerSpec& layer() const { return layer_; }
  /// What its factors look like: embedding: a words, g features.
  const doc::Block& shape() const { return shape_; }
  at::ScalarType dtype() const { return dtype_; }
  std::int64_t dim(FactorSide side) const { return shape_.dimension(side); }
  std::int64_t packed_elements(FactorSide side) const { return doc::packed_elements(shape_, side); }
  /// Elements of packed_inverse(): packed_elements(), except for eigen's matrices, which are not
  /// symmetric.
  std::int64_t inverse_elements(FactorSide side) const {
    return is_eigen(side) ? doc::eigen_elements(shape_, side) : packed_elements(side);
  }
  /// Elements of a direction.
  std::int64_t direction_elements() const { return doc::gradient_elements(shape_); }
  /// Whether the factor consists of matrices, whose inverses take a while.
  bool is_dense(FactorSide side) const { return shape_.dense(side); }
  bool is_eigen(FactorSide side) const {
    return options_.method == InverseMethod::eigen && is_dense(side);
  }

  /// One of a block's factors.
  struct Factor {
    CurvatureBlock* block;
    FactorSide side;
  };
  /// A factor in packed form: as a sum, then its doc::kFactorCounts; or as an inverse.
  struct Packed {
    Factor factor;
    at::Tensor values;  // a vector without gaps, of any floating type
  };

  // --- A batch's statistics, in the units of one loss term.

  /// Called before the operator's kernel.
  virtual void add_input(const LayerInput& input) = 0;
  /// `gradient` is that of the operator's output. Times `scale` it is the gradient of a single loss
  /// term, or of the sum if the loss is a sum. `input` as in add_input(), its tensor only if
  /// keeps_input().
  virtual void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) = 0;
  virtual bool keeps_input() const { return false; }
  /// Loss terms of the gradients that are added.
  void count_terms(double terms) { of(FactorSide::g).count += terms; }
  /// Loss terms of the step, whether they use the layer or not. G is divided by their number,
  /// because terms that do not use the layer have a gradient of zero here. The greater of this and
  /// count_terms() counts.
  void count_step_terms(double terms) { step_terms_ += terms; }
  bool has_batch(FactorSide side) const { return of(side).sum.defined(); }
  /// The batches' sums and counts, into `values`; an unused layer's sum is 0.
  static void pack_batches(std::span<const Packed> sums);
  at::Tensor packed_batch(FactorSide side);
  /// The sum divided: the factor of this rank alone. Zeros if nothing was counted.
  at::Tensor batch_factor(FactorSide side);
  void discard_batch();

  // --- Running averages.

  /// average = rho average + (1 - rho) sum / count. In the k-th update rho = min(1 - 1/k, decay)
  /// (Martens & Grosse 2015). So the average begins with the first factor, and not with an identity
  /// that would stay in it. For example with decay 0.95 the weights of the new factor are 1, 1/2,
  /// 1/3, ..., 1/20, 1/20, ...
  ///
  /// A layer that nobody used on all of the sides that are here keeps its average, and so does one
  /// whose sum is not finite. Returns bool [sums]: the layer was used, but the sum was not finite.
  /// `keep_inverted`: keeps for save() the average that the inverse in use was computed from, until
  /// there is a new one.
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
  /// Inverts each factor in one try. It needs averages of both sides, because pi is the root of the
  /// ratio of their traces. If the try fails, the old inverse stays, and the next try has 10 times
  /// the damping, up to 1000 times. Each success divides the factor by 10 again, down to the
  /// damping that is given. damping: a scalar f64 tensor. On a device matrices of one size are
  /// inverted together.
  ///
  /// sent: empty, or for each factor the memory of a payload or an undefined tensor. The packed
  /// inverse is written to the payload and taken from there, as the ranks take it that receive it.
  /// The solver's own result has other roundings, so weights would drift apart. Nobody takes the
  /// numbers of an inverse that failed.
  static Inverted invert(std::span<const Factor> factors, const at::Tensor& damping,
                         std::span<const at::Tensor> sent = {}, const Timed& timed = {});
  /// The inverse in use.
  at::Tensor packed_inverse(FactorSide side) const {
    return packed_inverse(side, of(side).known.inverse);
  }
  /// Takes inverses that other ranks have computed from the averages that are here, if `there`
  /// (bool [inverses]). Returns bool [inverses]: it was not there, though there are averages.
  static at::Tensor take_inverses(std::span<const Packed> inverses, const at::Tensor& there,
                                  const at::Tensor& damping);

  // --- Directions.

  /// Directions of n blocks of one shape, by block in dimension 0. A layer's gradient is the matrix
  /// [groups, g, a], with the bias's as its last column. An embedding's is [1, a, g], and a norm
  /// layer's is [1, 2, units].
  struct Directions {
    at::Tensor gradients,
        directions;       // without an inverse: 0, or NaN if the gradient is not finite
    at::Tensor exist;     // bool [n]
    at::Tensor products;  // f64 [n]: <direction, gradient>
  };
  using Alike = std::span<CurvatureBlock* const>;
  /// (F + damping)^-1 gradient, of weights that have gradients. `damping`, a scalar f64 tensor,
  /// counts if the method is exact (eigen). Else the damping is in the inverses already.
  static Directions directions(Alike blocks, const at::Tensor& damping);
  /// The same of directions that owners have computed, which are vectors; `exist`: bool [n].
  static Directions taken_directions(Alike blocks, const std::vector<at::Tensor>& values,
                                     const at::Tensor& exist);
  virtual at::Tensor gradients(Alike blocks) const = 0;
  /// .grad = direction, in the memory that .grad has; `directions` as Directions has them.
  static void write(Alike blocks, const at::Tensor& directions);

  // --- State and bookkeeping.

  /// A factor's inverse. Dense: matrix [groups, d, d]; for eigen its columns are the vectors, and
  /// values [groups, d]. Else [1, elements], in the form of this kind of layer.
  struct Inverse {
    at::Tensor matrix, values;
  };
  /// All of a side but the batch that is being collected. Scalars are scalar tensors on the
  /// weight's device.
  struct Curvature {
    at::Tensor average, inverted;
    Inverse inverse;     // undefined: none was tried yet; zeros stand for one that failed
    at::Tensor updates;  // f64
    at::Tensor exists;   // bool: there is an inverse
    at::Tensor damping;  // f64: of the inverse in use
    at::Tensor raised;   // f64: the next inverse's lambda is so many times as much
  };
  /// A state to go back to. Shares memory: changing a tensor means making a new one.
  using Known = std::array<Curvature, 2>;
  Known known() const { return {sides_[0].known, sides_[1].known}; }
  void set_known(const Known& known);

  KfacState::Factor save(FactorSide side) const;
  /// The inverses are recomputed once both sides are loaded, in restore_inverses().
  void load(FactorSide side, const KfacState::Factor& state);
  void restore_inverses();

  void add_memory(KfacMemory& all) const;

 protected:
  /// sum() is the sum of this batch, zeros at first: [groups, d, d] or packed. count() is its rows
  /// or terms.
  at::Tensor& sum(FactorSide side);
  double& count(FactorSide side) { return of(side).count; }
  /// Adds to the count a scalar f64 tensor whose value the host does not have.
  void count_there(FactorSide side, const at::Tensor& more);
  /// Inverses of n packed factors that are no matrices, [n, elements]. damping [n, 1] has their
  /// type; it is lambda for a norm layer, else factored. precondition() takes the result as the
  /// matrix.
  virtual at::Tensor diagonal_inverses(const at::Tensor& packed,
                                       const at::Tensor& damping) const = 0;
  virtual at::Tensor precondition(const at::Tensor& gradients, const Inverse& a, const Inverse& g,
                                  const at::Tensor& damping) const = 0;
  using Parts = std::vector<std::pair<at::Tensor, at::Tensor>>;
  /// The parts of one block's direction: each parameter with its part, in the parameter's shape.
  virtual Parts parts(const at::Tensor& direction) const = 0;
  at::Tensor to_dtype(const at::Tensor& tensor) const { return tensor.detach().to(dtype_); }
  bool reduces() const { return options_.shared_positions == SharedPositions::reduce; }
  /// Options of this block's type and device.
  at::TensorOptions tensor_options() const { return layer_.weight.options().dtype(dtype_); }

  const BlockOptions options_;

 private:
  struct Side {
    at::Tensor sum;
    double count = 0;
    at::Tensor count_there;  // to be added to `count`; undefined: zero
    Curvature known;
  };
  Side& of(FactorSide side) { return sides_[to_index(side)]; }
  const Side& of(FactorSide side) const { return sides_[to_index(side)]; }
  /// The other side, or this one if the layer has no other.
  FactorSide partner(FactorSide side) const;
  /// The number by which the batch's sum is divided.
  double divisor(FactorSide side) const;
  at::Tensor scalar(double value) const;
  at::Tensor packed_inverse(FactorSide side, const Inverse& inverse) const;
  Inverse unpacked_inverse(FactorSide side, const at::Tensor& packed) const;
  /// The inverses of several blocks, one after the other. On a device the blocks' own are views of
  /// the result from now on, so that the next step copies nothing.
  static Inverse joined_inverses(Alike blocks, FactorSide side);

  /// The packed averages that inverses are computed from, by factor: its own, and its partner's.
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
                        const std::vector<at::Tensor>& damping, const std::vector<std::size_t>& set,
                        Tried& tried);
  static void choose(Inverse& inverse, const Inverse& found, const at::Tensor& there);
  static at::Tensor have_averages(std::span<const Factor> factors);
  static void take(std::span<const Factor> factors, const std::vector<Inverse>& found,
                   const at::Tensor& there, const at::Tensor& lambdas);

  const LayerSpec layer_;
  const doc::Block shape_;
  const at::ScalarType dtype_;
  std::array<Side, 2> sides_;
  double step_terms_ = 0;
};

/// The block of a layer's kind.
std::unique_ptr<CurvatureBlock> make_block(const LayerSpec& layer, const BlockOptions& options);
doc::Block block_shape(const LayerSpec& layer);

}  // namespace linerate::torch_adapter
