// K-FAC approximates a layer's Fisher matrix F by a Kronecker product of two small matrices
// (Martens & Grosse 2015). A is made of the layer's inputs, and G of the gradients of its outputs.
// The inverse of a Kronecker product is the product of the inverses, so the direction of a layer's
// gradient matrix is G^-1 gradient A^-1. This file has what all kinds of layers share; what a kind
// adds is in kronecker_block.cpp.
//
// Damping is factored: A gets gamma pi I and G gets gamma / pi I, with gamma = sqrt(lambda). pi² =
// (tr A / a) / (tr G / g), so that both factors get the same portion of their mean eigenvalue. For
// example A has a mean eigenvalue of 100 and G of 1, and lambda is 0.04. Then gamma is 0.2 and pi
// is 10, so A gets 2 and G gets 0.02: both get 2 % of their mean.
#include "linerate/kfac/curvature_block.hpp"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/kfac/factor_inverse.hpp"

namespace linerate::torch_adapter {
namespace {

using Tensors = std::vector<at::Tensor>;

/// A factor's damping goes with the root of lambda. So a lambda of 100 times as much is 10 times
/// the damping, and 1000 times are the most.
constexpr double kMoreLambda = 100, kMostLambda = 1e6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// The most elements of matrices that are inverted together.
constexpr std::int64_t kTogether = std::int64_t{1} << 24;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

template <typename List, typename Get>
at::Tensor stacked(const List& list, Get&& get) {
  Tensors all;
  for (const auto& one : list) all.push_back(get(one));
  return torch_adapter::stacked(all);
}

/// Sets of places that are computed together: places with the same key, up to so many elements. On
/// the CPU each place is a set of its own (`alone`).
using Places = std::vector<std::size_t>;
template <typename Key>
class Sets {
 public:
  void add(std::size_t place, const Key& key, bool alone, std::int64_t elements) {
    auto& [set, held] = open_[key];
    if (alone || held == 0 || held + elements > kTogether)
      set = sets_.size(), held = 0, sets_.emplace_back();
    sets_[set].push_back(place);
    held += elements;
  }
  const std::vector<Places>& all() const { return sets_; }

 private:
  std::map<Key, std::pair<std::size_t, std::int64_t>> open_;
  std::vector<Places> sets_;
};

/// The parts of `all`, which has a row for each group of these factors, one after the other.
Tensors parts_of(const at::Tensor& all, std::span<const CurvatureBlock::Factor> factors,
                 const Places& set) {
  if (set.size() == 1) return {all};
  std::vector<std::int64_t> groups;
  for (const std::size_t k : set) groups.push_back(factors[k].block->shape().groups);
  return all.split_with_sizes(groups);
}

/// Inner products of x and y, whose dimension 0 is n parts: f64 [n].
at::Tensor inner_products(const at::Tensor& x, const at::Tensor& y, std::int64_t n) {
  if (n > 1 || !runs_on_host(x)) return x.to(at::kDouble).mul(y).view({n, -1}).sum(1);
  const at::Tensor a = x.contiguous(), b = y.contiguous();
  at::Tensor result = at::empty({1}, at::kDouble);
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "inner_product", [&] {
    const scalar_t* const p = a.const_data_ptr<scalar_t>();
    const scalar_t* const q = b.const_data_ptr<scalar_t>();
    // Four sums, because with a single one each addition would wait for the one before.
    std::array<double, 4> sums{};
    const std::int64_t elements = a.numel();
    std::int64_t i = 0;
    for (; i + 4 <= elements; i += 4)
      for (std::int64_t k = 0; k < 4; ++k)
        sums[to_index(k)] += static_cast<double>(p[i + k]) * static_cast<double>(q[i + k]);
    for (; i < elements; ++i) sums[0] += static_cast<double>(p[i]) * static_cast<double>(q[i]);
    result.mutable_data_ptr<double>()[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  });
  return result;
}

}  // namespace

CurvatureBlock::CurvatureBlock(const LayerSpec& layer, const BlockOptions& options)
    : options_(options),
      layer_(layer),
      shape_(block_shape(layer)),
      dtype_(layer_.weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) {
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) load(side, {});
}

at::Tensor CurvatureBlock::scalar(double value) const {
  return at::full({}, value, tensor_options().dtype(at::kDouble));
}

FactorSide CurvatureBlock::partner(FactorSide side) const {
  const FactorSide other = side == FactorSide::a ? FactorSide::g : FactorSide::a;
  return packed_elements(other) > 0 ? other : side;
}

// ---- a batch's statistics ----

at::Tensor& CurvatureBlock::sum(FactorSide side) {
  at::Tensor& sum = of(side).sum;
  if (!sum.defined()) {
    const at::TensorOptions options = tensor_options();
    sum = is_dense(side) ? at::zeros({shape_.groups, dim(side), dim(side)}, options)
                         : at::zeros({packed_elements(side)}, options);
  }
  return sum;
}

void CurvatureBlock::count_there(FactorSide side, const at::Tensor& more) {
  at::Tensor& count = of(side).count_there;
  count = count.defined() ? count + more : more;
}

double CurvatureBlock::divisor(FactorSide side) const {
  return side == FactorSide::a ? of(side).count : std::max(of(side).count, step_terms_);
}

/// All factors of a payload are packed by few operators. Triangles of each size take one set of
/// them, sums of another type one, zeros one, and the counts two. Each factor is followed by its
/// two counts: rows or terms of this layer, and the divisor.
void CurvatureBlock::pack_batches(std::span<const Packed> sums) {
  Tensors full, triangles, others, from, counts, unused;
  std::vector<at::Scalar> numbers;
  std::vector<std::pair<at::Tensor, at::Tensor>> counted_there;
  for (const auto& [factor, values] : sums) {
    const auto& [block, side] = factor;
    const Side& s = block->of(side);
    const std::int64_t elements = block->packed_elements(side);
    LINERATE_CHECK(values.numel() == elements + doc::kFactorCounts,
                   fmt::format("{} elements for a sum of {}", values.numel(), block->layer_.name));
    const at::Tensor sum = values.narrow(0, 0, elements);
    const bool packs = s.sum.defined() && block->is_dense(side);
    if (packs && values.scalar_type() == block->dtype_)
      full.push_back(s.sum), triangles.push_back(sum);
    else if (s.sum.defined())
      others.push_back(sum), from.push_back(packs ? pack_triangles(s.sum) : s.sum);
    else
      unused.push_back(sum);
    const std::array<double, doc::kFactorCounts> both{s.count, block->divisor(side)};
    for (std::size_t k = 0; k < both.size(); ++k) {
      counts.push_back(values.select(0, elements + static_cast<std::int64_t>(k)));
      numbers.emplace_back(both[k]);
      if (s.count_there.defined()) counted_there.emplace_back(counts.back(), s.count_there);
    }
  }
  pack_triangles(full, triangles);
  if (!others.empty()) at::_foreach_copy_(others, from);
  if (!unused.empty()) at::_foreach_zero_(unused);
  if (runs_on_host(counts.front())) {  // where foreach with numbers takes six operators for each
    for (std::size_t k = 0; k < counts.size(); ++k) counts[k].fill_(numbers[k]);
  } else {
    at::_foreach_zero_(counts);
    at::_foreach_add_(counts, numbers);
  }
  for (const auto& [count, more] : counted_there) count.add_(more);
}

at::Tensor CurvatureBlock::packed_batch(FactorSide side) {
  const Packed packed{{this, side},
                      at::empty({packed_elements(side) + doc::kFactorCounts}, tensor_options())};
  pack_batches(std::span(&packed, 1));
  return packed.values;
}

at::Tensor CurvatureBlock::batch_factor(FactorSide side) {
  const at::Tensor packed = packed_batch(side);
  const std::int64_t elements = packed_elements(side);
  return at::where(packed[elements].gt(0.0),
                   packed.narrow(0, 0, elements).div(packed[elements + 1]), 0.0);
}

void CurvatureBlock::discard_batch() {
  for (Side& s : sides_) {
    s.sum.reset();
    s.count = 0;
    s.count_there.reset();
  }
  step_terms_ = 0;
}

// ---- running averages ----

/// A layer counts only if both its sides that are here were used, so that A and G stay averages of
/// the same steps. On the CPU a factor that does not count is left out; on a device its new average
/// is chosen to be the old one.
at::Tensor CurvatureBlock::update_averages(std::span<const Packed> sums, double decay,
                                           bool keep_inverted) {
  const auto number = [](const Packed& one, std::int64_t which) {
    return one.values.select(0, one.factor.block->packed_elements(one.factor.side) + which);
  };
  Tensors values, own, other;
  for (const Packed& one : sums) {
    const auto& [block, side] = one.factor;
    values.push_back(one.values.narrow(0, 0, block->packed_elements(side)));
    own.push_back(number(one, 0)), other.push_back(own.back());
    for (const Packed& each : sums)
      if (each.factor.block == block && each.factor.side != side) other.back() = number(each, 0);
  }
  const at::Tensor divisors = stacked(sums, [&](const Packed& one) { return number(one, 1); });
  const at::Tensor used = at::minimum(stacked(own), stacked(other)).gt(0.0);
  const at::Tensor finite =
      which_are_finite(values).bitwise_and(at::isfinite(divisors.reciprocal()));
  const at::Tensor counts = used.bitwise_and(finite);
  const at::Tensor updates = stacked(sums, [](const Packed& one) {
                               return one.factor.block->of(one.factor.side).known.updates;
                             }).add(counts);
  const Tensors each_counts = counts.unbind(), each_updates = updates.unbind();
  const at::Tensor weights = updates.clamp_min(1).reciprocal().clamp_min(1 - decay);
  const Tensors in_f64 = weights.unbind(), in_f32 = weights.to(at::kFloat).unbind();
  for (std::size_t k = 0; k < sums.size(); ++k) {
    CurvatureBlock& block = *sums[k].factor.block;
    Curvature& s = block.of(sums[k].factor.side).known;
    const bool on_host = runs_on_host(values[k]);
    if (on_host && !each_counts[k].item<bool>()) continue;
    const at::Tensor factor = block.to_dtype(values[k]).div(block.to_dtype(number(sums[k], 1)));
    const at::Tensor before = s.average.defined() ? s.average : at::zeros_like(factor);
    const bool may_be_inverted = on_host ? s.exists.item<bool>() : s.inverse.matrix.defined();
    if (keep_inverted && may_be_inverted && !s.inverted.defined()) s.inverted = before;
    s.updates = each_updates[k];
    const Tensors& weight = block.dtype_ == at::kDouble ? in_f64 : in_f32;
    // The average is a new tensor, because a step that is undone goes back to the old one. The
    // first factor is taken as it is.
    const at::Tensor next = choice(each_counts[k], factor, before);
    s.average = s.average.defined() ? at::lerp(before, next, weight[k]) : next;
  }
  return used.bitwise_and(finite.bitwise_not());
}

// ---- inverses ----

/// Mean eigenvalues (trace by dimension) of each factor, [groups] f64. An embedding has one A for
/// its one G.
std::vector<at::Tensor> CurvatureBlock::mean_eigenvalues(std::span<const Factor> factors,
                                                         std::span<const at::Tensor> packed) {
  Tensors means(factors.size());
  Sets<std::int64_t> sets;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    const auto& [block, side] = factors[k];
    const std::int64_t d = block->dim(side);
    if (block->is_dense(side))
      sets.add(k, d, runs_on_host(packed[k]), packed[k].numel());
    else
      means[k] = packed[k].sum(at::kDouble).div(static_cast<double>(d)).unsqueeze(0);
  }
  for (const Places& set : sets.all()) {
    Tensors triangles;
    for (const std::size_t k : set) triangles.push_back(packed[k]);
    const std::int64_t d = factors[set.front()].block->dim(factors[set.front()].side);
    const Tensors each = parts_of(mean_diagonals(triangles, d), factors, set);
    for (std::size_t i = 0; i < set.size(); ++i) means[set[i]] = each[i];
  }
  return means;
}

/// The damping that each factor gets, [groups] f64: gamma pi of A, gamma / pi of G, lambda of a
/// norm layer. pi² = (tr A / a) / (tr G / g); it is 1 for a dead layer, which has no trace.
/// lambdas: f64 [factors].
std::vector<at::Tensor> CurvatureBlock::dampings(std::span<const Factor> factors,
                                                 const Sources& sources,
                                                 const at::Tensor& lambdas) {
  Tensors all(factors.size()), packed, lambda;
  std::vector<Factor> both;  // own ones, then their partners
  Places factored;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    const auto& [block, side] = factors[k];
    all[k] = lambdas.narrow(0, static_cast<std::int64_t>(k), 1);
    if (block->shape_.kind == BlockKind::unit_wise || block->is_eigen(side)) continue;
    factored.push_back(k);
    both.push_back(factors[k]), packed.push_back(sources.own[k]);
    lambda.push_back(all[k].expand({block->shape_.groups}));
  }
  if (factored.empty()) return all;
  for (const std::size_t k : factored) {
    both.push_back({factors[k].block, factors[k].block->partner(factors[k].side)});
    packed.push_back(sources.partner[k]);
  }
  const Tensors means = mean_eigenvalues(both, packed);
  const auto partners = means.begin() + std::ssize(factored);
  const at::Tensor ratio =
      joined(Tensors(means.begin(), partners)).div(joined(Tensors(partners, means.end())));
  const at::Tensor is_usable = ratio.gt(0.0).bitwise_and(ratio.lt(kInfinity));
  const at::Tensor pi = at::where(is_usable, ratio.sqrt(), 1.0);
  const Tensors found = parts_of(joined(lambda).sqrt().mul(pi), factors, factored);
  for (std::size_t i = 0; i < factored.size(); ++i) all[factored[i]] = found[i];
  return all;
}

CurvatureBlock::Tried CurvatureBlock::try_inverses(std::span<const Factor> factors,
                                                   const Sources& sources,
                                                   const at::Tensor& lambdas, const Timed& timed) {
  const Tensors damping = dampings(factors, sources, lambdas);
  // The key of a set: dense or not, dimension, elements, side.
  Sets<std::tuple<bool, std::int64_t, std::int64_t, FactorSide>> sets;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    const auto& [block, side] = factors[k];
    const bool dense = block->is_dense(side);
    sets.add(k,
             {dense, block->dim(side), dense ? 0 : block->packed_elements(side),
              dense ? FactorSide::a : side},
             block->is_eigen(side) || runs_on_host(sources.own[k]), sources.own[k].numel());
  }
  Tried tried{std::vector<Inverse>(factors.size()), Tensors(factors.size())};
  for (const Places& set : sets.all()) {
    const auto work = [&] { try_alike(factors, sources.own, damping, set, tried); };
    timed ? timed(set, work) : work();
  }
  return tried;
}

/// Inverts factors of one size, damped, into `tried`.
void CurvatureBlock::try_alike(std::span<const Factor> factors, const Tensors& own,
                               const Tensors& damping, const std::vector<std::size_t>& set,
                               Tried& tried) {
  const auto& [block, side] = factors[set.front()];
  Tensors packed, dampings;
  for (const std::size_t k : set) packed.push_back(own[k]), dampings.push_back(damping[k]);
  if (!block->is_dense(side)) {
    for (at::Tensor& one : packed) one = one.unsqueeze(0);
    const at::Tensor found =
        block->diagonal_inverses(joined(packed), block->to_dtype(joined(dampings)).unsqueeze(1));
    const Tensors inverses = found.split(1), fine = at::isfinite(found.abs().amax({1})).unbind();
    for (std::size_t i = 0; i < set.size(); ++i) {
      tried.inverses[set[i]].matrix = inverses[i];
      tried.succeeded[set[i]] = fine[i];
    }
    return;
  }
  const at::Tensor full = unpack_triangles(packed, block->dim(side));
  const Solved solved =
      block->is_eigen(side) ? symmetric_eigen(full) : damped_inverses(full, joined(dampings));
  const Tensors matrices = parts_of(solved.matrices, factors, set),
                fine = parts_of(solved.succeeded, factors, set);
  const Tensors values =
      solved.values.defined() ? parts_of(solved.values, factors, set) : Tensors(set.size());
  for (std::size_t i = 0; i < set.size(); ++i) {
    tried.inverses[set[i]] = {matrices[i], values[i]};
    tried.succeeded[set[i]] = fine[i].numel() == 1 ? fine[i].squeeze(0) : fine[i].all();
  }
}

/// Takes `found` if it is there, else keeps the inverse that was; zeros if there was none.
void CurvatureBlock::choose(Inverse& inverse, const Inverse& found, const at::Tensor& there) {
  const auto one = [&](at::Tensor& mine, const at::Tensor& theirs) {
    if (theirs.defined())
      mine = choice(there, theirs, mine.defined() ? mine : at::zeros_like(theirs));
  };
  one(inverse.matrix, found.matrix);
  one(inverse.values, found.values);
}

/// Whether there are averages of both sides: bool [factors].
at::Tensor CurvatureBlock::have_averages(std::span<const Factor> factors) {
  const auto updates = [](const Factor& f) { return f.block->of(f.side).known.updates; };
  const auto others = [](const Factor& f) {
    return f.block->of(f.block->partner(f.side)).known.updates;
  };
  return at::minimum(stacked(factors, updates), stacked(factors, others)).gt(0.0);
}

/// Takes the new inverses of those factors that have one (there: bool [factors]); lambdas: f64
/// [factors].
void CurvatureBlock::take(std::span<const Factor> factors, const std::vector<Inverse>& found,
                          const at::Tensor& there, const at::Tensor& lambdas) {
  const auto of = [](const Factor& f) -> Curvature& { return f.block->of(f.side).known; };
  const Tensors each = there.unbind();
  const Tensors exist =
      stacked(factors, [&](const Factor& f) { return of(f).exists; }).bitwise_or(there).unbind();
  const Tensors damping =
      at::where(there, lambdas, stacked(factors, [&](const Factor& f) { return of(f).damping; }))
          .unbind();
  for (std::size_t k = 0; k < factors.size(); ++k) {
    Curvature& s = of(factors[k]);
    choose(s.inverse, found[k], each[k]);
    s.exists = exist[k], s.damping = damping[k];
    if (s.inverted.defined()) s.inverted = choice(each[k], s.average, s.inverted);
    if (s.inverted.is_same(s.average)) s.inverted.reset();  // on the CPU
  }
}

CurvatureBlock::Inverted CurvatureBlock::invert(std::span<const Factor> factors,
                                                const at::Tensor& damping,
                                                std::span<const at::Tensor> sent,
                                                const Timed& timed) {
  Sources sources;
  const auto source = [](CurvatureBlock& block, FactorSide side) {
    at::Tensor& average = block.of(side).known.average;
    if (!average.defined())
      average = at::zeros({block.packed_elements(side)}, block.tensor_options());
    return average;
  };
  for (const auto& [block, side] : factors) {
    sources.own.push_back(source(*block, side));
    sources.partner.push_back(source(*block, block->partner(side)));
  }
  const at::Tensor known = have_averages(factors);
  const at::Tensor raised =
      stacked(factors, [](const Factor& f) { return f.block->of(f.side).known.raised; });
  const at::Tensor lambdas = raised.mul(damping);
  Tried tried = try_inverses(factors, sources, lambdas, timed);
  for (std::size_t k = 0; k < sent.size(); ++k) {
    if (!sent[k].defined()) continue;
    const auto& [block, side] = factors[k];
    sent[k].copy_(block->packed_inverse(side, tried.inverses[k]));
    tried.inverses[k] = block->unpacked_inverse(side, sent[k]);
  }
  const at::Tensor fine = stacked(tried.succeeded);
  const Inverted found{known.bitwise_and(fine), known.bitwise_and(fine.bitwise_not())};
  take(factors, tried.inverses, found.succeeded, lambdas);
  const at::Tensor less = at::where(found.succeeded, raised.div(kMoreLambda), raised);
  const Tensors next =
      at::where(found.failed, raised.mul(kMoreLambda), less).clamp(1.0, kMostLambda).unbind();
  for (std::size_t k = 0; k < factors.size(); ++k)
    factors[k].block->of(factors[k].side).known.raised = next[k];
  return found;
}

at::Tensor CurvatureBlock::packed_inverse(FactorSide side, const Inverse& inverse) const {
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
  return {mine.unsqueeze(0).clone(), {}};
}

at::Tensor CurvatureBlock::take_inverses(std::span<const Packed> inverses, const at::Tensor& there,
                                         const at::Tensor& damping) {
  std::vector<Factor> factors;
  std::vector<Inverse> found;
  for (const auto& [factor, values] : inverses) {
    factors.push_back(factor);
    found.push_back(factor.block->unpacked_inverse(factor.side, values));
  }
  take(factors, found, there, damping.expand({there.size(0)}));
  return have_averages(factors).bitwise_and(there.bitwise_not());
}

// ---- directions ----

CurvatureBlock::Inverse CurvatureBlock::joined_inverses(Alike blocks, FactorSide side) {
  const auto join = [&](at::Tensor Inverse::*part) {
    const at::Tensor first = blocks.front()->of(side).known.inverse.*part;
    if (blocks.size() == 1 || !first.defined()) return first;
    Tensors parts;
    bool is_one = true;
    for (CurvatureBlock* const block : blocks) {
      const at::Tensor& mine = parts.emplace_back(block->of(side).known.inverse.*part);
      const auto k = static_cast<std::int64_t>(parts.size()) - 1;
      is_one = is_one && mine.is_alias_of(first) && mine.is_contiguous() &&
               mine.storage_offset() == first.storage_offset() + k * first.numel();
    }
    std::vector<std::int64_t> sizes = first.sizes().vec();
    sizes[0] *= std::ssize(parts);
    if (is_one) return first.as_strided(sizes, first.strides());
    const at::Tensor all = at::cat(parts);
    for (std::size_t k = 0; k < parts.size(); ++k)
      blocks[k]->of(side).known.inverse.*part =
          all.narrow(0, static_cast<std::int64_t>(k) * first.size(0), first.size(0));
    return all;
  };
  return {join(&Inverse::matrix), join(&Inverse::values)};
}

CurvatureBlock::Directions CurvatureBlock::directions(Alike blocks, const at::Tensor& damping) {
  const CurvatureBlock& first = *blocks.front();
  const auto n = static_cast<std::int64_t>(blocks.size());
  const FactorSide other = first.partner(FactorSide::g);
  bool tried = true;
  for (const CurvatureBlock* const block : blocks)
    for (const FactorSide side : {FactorSide::g, other})
      tried = tried && block->of(side).known.inverse.matrix.defined();
  const auto exist = [&](FactorSide side) {
    return stacked(blocks, [side](const CurvatureBlock* b) { return b->of(side).known.exists; });
  };
  Directions found{first.gradients(blocks), {}, exist(FactorSide::g), {}};
  if (other != FactorSide::g) found.exist = found.exist.bitwise_and(exist(other));
  found.directions =
      tried ? first.precondition(found.gradients, joined_inverses(blocks, FactorSide::a),
                                 joined_inverses(blocks, FactorSide::g), damping)
            : found.gradients.mul(0);
  found.products = inner_products(found.directions, found.gradients, n);
  return found;
}

CurvatureBlock::Directions CurvatureBlock::taken_directions(Alike blocks, const Tensors& values,
                                                            const at::Tensor& exist) {
  const CurvatureBlock& first = *blocks.front();
  const auto n = static_cast<std::int64_t>(blocks.size());
  Directions found{first.gradients(blocks), {}, exist, {}};
  Tensors parts;
  for (const at::Tensor& one : values) parts.push_back(first.to_dtype(one));
  // A vector that stands for "no direction" is not finite, so it is replaced.
  found.directions =
      at::where(exist.unsqueeze(1), joined(parts).view({n, -1}), 0.0).view(found.gradients.sizes());
  found.products = inner_products(found.directions, found.gradients, n);
  return found;
}

void CurvatureBlock::write(Alike blocks, const at::Tensor& directions) {
  Tensors gradients, values;
  const std::int64_t each = directions.size(0) / std::ssize(blocks);
  std::int64_t begin = 0;
  for (CurvatureBlock* const block : blocks) {
    for (const auto& [parameter, part] : block->parts(directions.narrow(0, begin, each))) {
      if (!parameter.defined() || !parameter.grad().defined()) continue;
      gradients.push_back(parameter.grad());
      values.push_back(part.reshape(parameter.sizes()));
    }
    begin += each;
  }
  if (!gradients.empty()) at::_foreach_copy_(gradients, values);
}

// ---- state and bookkeeping ----

void CurvatureBlock::set_known(const Known& known) {
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    of(side).known = known[to_index(side)];
}

KfacState::Factor CurvatureBlock::save(FactorSide side) const {
  const Curvature& s = of(side).known;
  const at::Tensor numbers = at::stack({s.updates, s.damping, s.exists.to(at::kDouble)}).cpu();
  const double* const number = numbers.const_data_ptr<double>();
  const auto updates = static_cast<std::int64_t>(number[0]);
  const auto copy = [&](const at::Tensor& t) {
    // Without updates the average is zeros, and is not saved.
    return updates > 0 && t.defined() ? t.clone() : at::Tensor();
  };
  return {updates, copy(s.average), copy(s.inverted), number[1], number[2] != 0};
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
  s.average = taken(state.average);
  s.inverted = taken(state.inverted);
  s.updates = scalar(static_cast<double>(state.updates));
  s.damping = scalar(state.damping);
  s.raised = scalar(1);
  s.exists = at::full({}, state.has_inverse, tensor_options().dtype(at::kBool));
}

/// Computes the inverses again after a load, each with the damping that it had and from the average
/// that it was computed from.
void CurvatureBlock::restore_inverses() {
  const auto source = [this](FactorSide side) {
    const Curvature& s = of(side).known;
    return s.inverted.defined() ? s.inverted : s.average;
  };
  std::vector<Factor> factors;
  Sources sources;
  Tensors lambdas;
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
    if (packed_elements(side) == 0 || !of(side).known.exists.cpu().item<bool>()) continue;
    if (!source(side).defined() || !source(partner(side)).defined()) continue;
    factors.push_back({this, side});
    sources.own.push_back(source(side)), sources.partner.push_back(source(partner(side)));
    lambdas.push_back(of(side).known.damping);
  }
  if (factors.empty()) return;
  const Tried tried = try_inverses(factors, sources, stacked(lambdas), {});
  for (std::size_t k = 0; k < factors.size(); ++k) {
    Curvature& s = of(factors[k].side).known;
    choose(s.inverse, tried.inverses[k], tried.succeeded[k]);
    s.exists = tried.succeeded[k];
  }
}

void CurvatureBlock::add_memory(KfacMemory& all) const {
  for (const Side& s : sides_) {
    all.statistics += bytes_of(s.sum);
    all.factors += bytes_of(s.known.average) + bytes_of(s.known.inverted);
    all.inverses += bytes_of(s.known.inverse.matrix) + bytes_of(s.known.inverse.values);
  }
}

}  // namespace linerate::torch_adapter
