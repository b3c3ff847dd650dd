#include "linerate/torch_adapter/kfac/curvature_block.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/triangle_packing.hpp"

namespace linerate::torch_adapter {
namespace {

FactorSide other(FactorSide side) { return side == FactorSide::a ? FactorSide::g : FactorSide::a; }

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

CurvatureBlock::CurvatureBlock(LayerSpec layer, Shape shape, const BlockOptions& options)
    : options_(options),
      layer_(std::move(layer)),
      shape_(shape),
      dtype_(layer_.weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) {}

bool CurvatureBlock::is_dense(FactorSide side) const {
  switch (shape_.kind) {
    case BlockKind::kronecker:
      return true;
    case BlockKind::embedding:
      return side == FactorSide::g;
    case BlockKind::unit_wise:
      break;
  }
  return false;
}

std::int64_t CurvatureBlock::packed_elements(FactorSide side) const {
  if (is_dense(side)) return shape_.groups * triangle_elements(dim(side));
  if (shape_.kind == BlockKind::embedding) return shape_.a;
  return side == FactorSide::g ? 3 * shape_.g : 0;
}

std::int64_t CurvatureBlock::inverse_elements(FactorSide side) const {
  if (!is_eigen(side)) return packed_elements(side);
  return shape_.groups * dim(side) * (dim(side) + 1);
}

std::int64_t CurvatureBlock::direction_elements() const {
  return shape_.kind == BlockKind::unit_wise ? 2 * shape_.g : shape_.groups * shape_.a * shape_.g;
}

at::Tensor& CurvatureBlock::sum(FactorSide side) {
  at::Tensor& sum = of(side).sum;
  if (!sum.defined()) {
    const at::TensorOptions options = tensor_options();
    sum = is_dense(side) ? at::zeros({shape_.groups, dim(side), dim(side)}, options)
                         : at::zeros({packed_elements(side)}, options);
  }
  return sum;
}

double CurvatureBlock::divisor(FactorSide side) const {
  return side == FactorSide::a ? of(side).count : std::max(of(side).count, step_terms_);
}

void CurvatureBlock::pack_batch(FactorSide side, const at::Tensor& out) const {
  const Side& s = of(side);
  const std::int64_t elements = packed_elements(side);
  LINERATE_CHECK(out.numel() == elements + doc::kFactorCounts,
                 fmt::format("{} elements for a sum of {}", out.numel(), layer_.name));
  const at::Tensor sum = out.narrow(0, 0, elements);
  if (!s.sum.defined())
    sum.zero_();
  else if (!is_dense(side))
    sum.copy_(s.sum);
  else if (out.scalar_type() == dtype_)
    pack_triangles(s.sum, sum);
  else
    sum.copy_(pack_triangles(s.sum));
  out[elements].fill_(s.count);
  out[elements + 1].fill_(divisor(side));
  if (!s.count_there.defined()) return;
  for (const std::int64_t i : {elements, elements + 1}) out[i].add_(s.count_there);
}

at::Tensor CurvatureBlock::packed_batch(FactorSide side) const {
  at::Tensor packed = at::empty({packed_elements(side) + doc::kFactorCounts}, tensor_options());
  pack_batch(side, packed);
  return packed;
}

at::Tensor CurvatureBlock::batch_factor(FactorSide side) const {
  const at::Tensor packed = packed_batch(side);
  const std::int64_t elements = packed_elements(side);
  return at::where(packed[elements].gt(0), packed.narrow(0, 0, elements).div(packed[elements + 1]),
                   0.0);
}

void CurvatureBlock::discard_batch() {
  for (Side& s : sides_) {
    s.sum.reset();
    s.count = 0;
    s.count_there.reset();
  }
  step_terms_ = 0;
}

void CurvatureBlock::count_there(FactorSide side, const at::Tensor& more) {
  at::Tensor& count = of(side).count_there;
  count = count.defined() ? count + more : more;
}

void CurvatureBlock::update_average(FactorSide side, const at::Tensor& packed, double decay,
                                    bool keep_inverted) {
  Curvature& s = of(side).known;
  ++s.updates;
  if (!s.average.defined()) {
    s.average = to_dtype(packed).clone();
    return;
  }
  const double rho = std::min(1 - 1 / static_cast<double>(s.updates), decay);
  if (keep_inverted && s.inverse && !s.inverted.defined()) s.inverted = s.average;
  // A new tensor: whoever saved the old one may want it back.
  s.average = s.average.mul(rho).add_(to_dtype(packed), 1 - rho);
}

/// [groups] f64.
at::Tensor CurvatureBlock::mean_eigenvalues_of(FactorSide side, const at::Tensor& packed) const {
  const auto d = static_cast<double>(dim(side));
  if (!is_dense(side)) return packed.sum(at::kDouble).div(d).unsqueeze(0);
  return packed_traces(packed, shape_.groups, dim(side)).div(d);
}

at::Tensor CurvatureBlock::factored_damping(FactorSide side, const Sources& sources,
                                            const at::Tensor& damping) const {
  // An embedding has one A for its one G; a dead layer has no trace.
  const at::Tensor ratio = mean_eigenvalues_of(FactorSide::a, sources.a)
                               .div(mean_eigenvalues_of(FactorSide::g, sources.g));
  const at::Tensor pi = at::where(at::isfinite(ratio).logical_and(ratio.gt(0)), ratio.sqrt(), 1.0);
  return damping.sqrt() * (side == FactorSide::a ? pi : pi.reciprocal());
}

std::optional<CurvatureBlock::Inverse> CurvatureBlock::invert(FactorSide side,
                                                              const Sources& sources,
                                                              double damping) const {
  const std::int64_t d = dim(side);
  const at::Tensor full =
      unpack_triangles(side == FactorSide::a ? sources.a : sources.g, shape_.groups, d);
  Inverse result{at::empty_like(full), {}};
  if (is_eigen(side)) {
    result.values = at::empty({shape_.groups, d}, full.options());
    for (int q = 0; q < shape_.groups; ++q) {
      const auto eigen = symmetric_eigen(full[q]);
      if (!eigen) return std::nullopt;
      result.matrix[q].copy_(eigen->vectors);
      result.values[q].copy_(eigen->values);
    }
    return result;
  }
  const at::Tensor dampings =
      factored_damping(side, sources, at::full({}, damping, full.options().dtype(at::kDouble)));
  for (int q = 0; q < shape_.groups; ++q) {
    const auto inverse = damped_inverse(full[q], dampings[q].item<double>());
    if (!inverse) return std::nullopt;
    // Symmetric bit for bit. Row by row in memory, like one sent by another rank: the order decides
    // how products round.
    if (shape_.groups == 1) return Inverse{inverse->mT().contiguous().unsqueeze(0), {}};
    result.matrix[q].copy_(*inverse);
  }
  return result;
}

bool CurvatureBlock::compute_inverse(FactorSide side, double damping) {
  const bool alone = packed_elements(other(side)) == 0;
  if (!average(side).defined() || (!alone && !average(other(side)).defined())) return false;
  auto inverse = invert(side, {average(FactorSide::a), average(FactorSide::g)}, damping);
  if (!inverse) return false;
  Curvature& s = of(side).known;
  s.inverse = std::move(inverse);
  s.inverted.reset();
  s.damping = damping;
  return true;
}

at::Tensor CurvatureBlock::packed_inverse(FactorSide side) const {
  const Inverse& inverse = *of(side).known.inverse;
  if (is_eigen(side)) return at::cat({inverse.matrix.flatten(), inverse.values.flatten()});
  return is_dense(side) ? pack_triangles(inverse.matrix) : inverse.matrix.flatten();
}

CurvatureBlock::Inverse CurvatureBlock::unpacked_inverse(FactorSide side,
                                                         const at::Tensor& packed) const {
  LINERATE_CHECK(packed.numel() == inverse_elements(side),
                 fmt::format("{} elements for the inverse of {}", packed.numel(), layer_.name));
  const at::Tensor mine = to_dtype(packed).contiguous();
  const std::int64_t d = dim(side), vectors = shape_.groups * d * d;
  if (is_eigen(side))
    return {mine.narrow(0, 0, vectors).view({shape_.groups, d, d}).clone(),
            mine.narrow(0, vectors, shape_.groups * d).view({-1, d}).clone()};
  if (is_dense(side)) return {unpack_triangles(mine, shape_.groups, d), {}};
  return {mine.clone(), {}};
}

void CurvatureBlock::set_packed_inverse(FactorSide side, const at::Tensor& packed, double damping) {
  Curvature& s = of(side).known;
  s.inverse = unpacked_inverse(side, packed);
  s.inverted.reset();
  s.damping = damping;
}

void CurvatureBlock::write_part(const at::Tensor& parameter, const at::Tensor& direction,
                                double nu) {
  if (parameter.defined() && parameter.grad().defined())
    parameter.mutable_grad().copy_(direction.reshape(parameter.sizes())).mul_(nu);
}

at::Tensor CurvatureBlock::precondition(const at::Tensor& gradient, double damping) const {
  return precondition(gradient, c10::scalar_to_tensor(damping));
}

bool CurvatureBlock::has_inverse() const {
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    if (packed_elements(side) > 0 && !of(side).known.inverse) return false;
  return true;
}

KfacState::Factor CurvatureBlock::save(FactorSide side) const {
  const Curvature& s = of(side).known;
  const std::int64_t updates =
      s.updates_there.defined() ? s.updates_there.item<std::int64_t>() : s.updates;
  const double damping = s.damping_there.defined() ? s.damping_there.item<double>() : s.damping;
  const bool has_inverse =
      s.inverse_there.defined() ? s.inverse_there.item<bool>() : s.inverse.has_value();
  const auto copy = [](const at::Tensor& t) { return t.defined() ? t.clone() : at::Tensor(); };
  // Zeros stand for an average that is not there yet.
  const bool averaged = updates > 0 || !s.updates_there.defined();
  return {updates, averaged ? copy(s.average) : at::Tensor(),
          averaged ? copy(s.inverted) : at::Tensor(), damping, has_inverse};
}

void CurvatureBlock::load(FactorSide side, const KfacState::Factor& state) {
  const auto taken = [&](const at::Tensor& t) {
    if (!t.defined()) return at::Tensor();
    if (t.numel() != packed_elements(side))
      throw InputError(fmt::format(
          "K-FAC state: layer \"{}\": expected {} elements of factor {}, found {}; load the state "
          "of the same model",
          layer_.name, packed_elements(side), side == FactorSide::a ? "A" : "G", t.numel()));
    return t.detach().to(tensor_options()).contiguous().clone();
  };
  Curvature& s = of(side).known;
  s = Curvature{};
  s.updates = state.updates;
  s.average = taken(state.average);
  s.inverted = taken(state.inverted);
  s.damping = state.damping;
  if (state.has_inverse) s.inverse = Inverse{};  // until restore_inverses()
}

void CurvatureBlock::restore_inverses() {
  Sources sources;
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    (side == FactorSide::a ? sources.a : sources.g) =
        curvature(side).inverted.defined() ? curvature(side).inverted : average(side);
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    if (Curvature& s = of(side).known; s.inverse) s.inverse = invert(side, sources, s.damping);
}

CurvatureBlock::Memory CurvatureBlock::memory() const {
  Memory memory;
  for (const Side& s : sides_) {
    memory.sums += bytes_of(s.sum);
    const Curvature& known = s.known;
    memory.averages += bytes_of(known.average) + bytes_of(known.inverted);
    if (known.inverse)
      memory.inverses += bytes_of(known.inverse->matrix) + bytes_of(known.inverse->values);
  }
  return memory;
}

}  // namespace linerate::torch_adapter
