// What a CurvatureBlock does without a look at values: decisions are tensors that choose.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/triangle_packing.hpp"

namespace linerate::torch_adapter {
namespace {

/// Of an inverse's damping.
constexpr double kMostTenfold = 3;

at::Tensor scalar(double value, const at::TensorOptions& options) {
  return at::full({}, value, options.dtype(at::kDouble));
}

/// `one` if `chosen`, else `other`, or zeros if there is none.
at::Tensor choice(const at::Tensor& chosen, const at::Tensor& one, const at::Tensor& other) {
  if (!one.defined()) return {};
  return at::where(chosen, one, other.defined() ? other : at::zeros_like(one));
}

}  // namespace

/// What has been decided on the host so far is decided there from now on.
CurvatureBlock::Curvature& CurvatureBlock::decided_there(FactorSide side) {
  Curvature& s = of(side).known;
  if (s.updates_there.defined()) return s;
  const at::TensorOptions options = tensor_options();
  s.updates_there = scalar(static_cast<double>(s.updates), options);
  s.damping_there = scalar(s.damping, options);
  s.raised_there = scalar(0, options);
  s.inverse_there = at::full({}, s.inverse.has_value(), options.dtype(at::kBool));
  if (!s.average.defined()) s.average = at::zeros({packed_elements(side)}, options);
  return s;
}

at::Tensor CurvatureBlock::enqueue_average(FactorSide side, const at::Tensor& packed,
                                           const at::Tensor& used, double decay,
                                           bool keep_inverted) {
  Curvature& s = decided_there(side);
  const at::Tensor factor = to_dtype(packed);
  const at::Tensor finite = at::isfinite(factor).all();
  const at::Tensor counts = used.logical_and(finite);
  if (keep_inverted && !s.inverted.defined()) s.inverted = s.average;
  s.updates_there = s.updates_there + counts;
  const at::Tensor weight = s.updates_there.clamp_min(1).reciprocal().clamp_min(1 - decay);
  s.average = at::where(counts, at::lerp(s.average, factor, weight.to(dtype_)), s.average);
  return used.logical_and(finite.logical_not());
}

CurvatureBlock::Tried CurvatureBlock::try_inverse(FactorSide side, const Sources& sources,
                                                  const at::Tensor& damping) const {
  const at::Tensor full =
      unpack_triangles(side == FactorSide::a ? sources.a : sources.g, shape_.groups, dim(side));
  if (!is_eigen(side)) {
    TriedInverse tried = try_damped_inverses(full, factored_damping(side, sources, damping));
    return {{std::move(tried.matrices), {}}, tried.succeeded.all()};
  }
  TriedEigen tried = try_symmetric_eigen(full);
  return {{std::move(tried.vectors), std::move(tried.values)}, std::move(tried.succeeded)};
}

void CurvatureBlock::enqueue_choice(FactorSide side, const Inverse& found, const at::Tensor& there,
                                    const at::Tensor& damping) {
  Curvature& s = decided_there(side);
  const Inverse before = s.inverse.value_or(Inverse{});
  s.inverse = Inverse{choice(there, found.matrix, before.matrix),
                      choice(there, found.values, before.values)};
  s.inverse_there = s.inverse_there.logical_or(there);
  s.damping_there = at::where(there, damping, s.damping_there);
}

at::Tensor CurvatureBlock::averages_there() {
  at::Tensor known;
  for (const FactorSide each : {FactorSide::a, FactorSide::g}) {
    if (packed_elements(each) == 0) continue;
    const at::Tensor here = decided_there(each).updates_there.gt(0);
    known = known.defined() ? known.logical_and(here) : here;
  }
  return known;
}

/// Each factor has the root of it.
at::Tensor CurvatureBlock::raised_damping(FactorSide side, const at::Tensor& damping) const {
  return at::pow(100, curvature(side).raised_there) * damping;
}

CurvatureBlock::Enqueued CurvatureBlock::enqueue_inverse(FactorSide side,
                                                         const at::Tensor& damping) {
  const at::Tensor known = averages_there();
  const Tried tried = try_inverse(side, {average(FactorSide::a), average(FactorSide::g)},
                                  raised_damping(side, damping));
  return enqueue_tried(side, tried, known, damping);
}

std::vector<CurvatureBlock::Enqueued> CurvatureBlock::enqueue_inverses(
    std::span<const Invertible> factors, const at::Tensor& damping) {
  std::vector<at::Tensor> known, matrices, dampings;
  for (const auto& [block, side] : factors) {
    known.push_back(block->averages_there());
    const Sources sources{block->average(FactorSide::a), block->average(FactorSide::g)};
    matrices.push_back(unpack_triangles(block->average(side), 1, block->dim(side)));
    dampings.push_back(
        block->factored_damping(side, sources, block->raised_damping(side, damping)));
  }
  const TriedInverse tried = try_damped_inverses(at::cat(matrices), at::cat(dampings));
  std::vector<Enqueued> found;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i);
    const auto& [block, side] = factors[i];
    found.push_back(block->enqueue_tried(
        side, {{tried.matrices.narrow(0, n, 1), {}}, tried.succeeded.select(0, n)}, known[i],
        damping));
  }
  return found;
}

/// What follows from a try.
CurvatureBlock::Enqueued CurvatureBlock::enqueue_tried(FactorSide side, const Tried& tried,
                                                       const at::Tensor& known,
                                                       const at::Tensor& damping) {
  Curvature& s = of(side).known;
  const Enqueued found{known.logical_and(tried.succeeded),
                       known.logical_and(tried.succeeded.logical_not())};
  enqueue_choice(side, tried.inverse, found.succeeded, damping);
  if (s.inverted.defined()) s.inverted = at::where(found.succeeded, s.average, s.inverted);
  s.raised_there =
      s.raised_there.add(found.failed).sub(found.succeeded.to(at::kDouble)).clamp(0, kMostTenfold);
  return found;
}

void CurvatureBlock::enqueue_taken_inverse(FactorSide side, const at::Tensor& packed,
                                           const at::Tensor& there, const at::Tensor& damping) {
  enqueue_choice(side, unpacked_inverse(side, packed), there, damping);
  Curvature& s = of(side).known;
  if (s.inverted.defined()) s.inverted = at::where(there, s.average, s.inverted);
}

at::Tensor CurvatureBlock::inverse_there() const {
  at::Tensor all;
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
    if (packed_elements(side) == 0) continue;
    const Curvature& s = curvature(side);
    const at::Tensor here = s.inverse_there.defined() ? s.inverse_there
                                                      : at::full({}, s.inverse.has_value(),
                                                                 tensor_options().dtype(at::kBool));
    all = all.defined() ? all.logical_and(here) : here;
  }
  return all;
}

}  // namespace linerate::torch_adapter
