// What a Preconditioner does without a look at values.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"

namespace linerate::torch_adapter {

bool Preconditioner::is_on_cpu() const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [](const auto& block) { return block->layer().weight.is_cpu(); });
}

at::Tensor Preconditioner::damping_there() const {
  return at::full({}, damping(), blocks_.front()->layer().weight.options().dtype(at::kDouble));
}

void Preconditioner::enqueue_fold(std::size_t i, const std::array<at::Tensor, 2>& packed) {
  CurvatureBlock& block = *blocks_[i];
  at::Tensor used;  // in both of its passes, by some rank
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
    if (block.packed_elements(side) == 0) continue;
    const at::Tensor here = packed[to_index(side)].select(0, block.packed_elements(side)).gt(0);
    used = used.defined() ? used.logical_and(here) : here;
  }
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
    const std::int64_t elements = block.packed_elements(side);
    if (elements == 0) continue;
    remember(i, side);
    const at::Tensor& sum = packed[to_index(side)];
    findings_.note(
        i, side, LateFindings::What::dropped,
        block.enqueue_average(side, sum.narrow(0, 0, elements).div(sum.select(0, elements + 1)),
                              used, options_.decay->at(step_), options_.exact_resume));
  }
}

at::Tensor Preconditioner::enqueue_inverse(std::size_t i, FactorSide side) {
  if (blocks_[i]->packed_elements(side) == 0) return {};
  remember(i, FactorSide::a);  // of a side without an average yet: it gets one of zeros
  remember(i, FactorSide::g);
  const CurvatureBlock::Enqueued found = blocks_[i]->enqueue_inverse(side, damping_there());
  findings_.note(i, side, LateFindings::What::not_inverted, found.failed);
  return found.succeeded;
}

void Preconditioner::enqueue_inverses(std::span<const std::int32_t> factors) {
  std::vector<CurvatureBlock::Invertible> invertible;
  for (const std::int32_t f : factors) {
    const std::size_t b = to_index(doc::block_of_factor(f));
    for (const FactorSide side : {FactorSide::a, FactorSide::g}) remember(b, side);
    invertible.push_back({blocks_[b].get(), doc::side_of_factor(f)});
  }
  const auto found = CurvatureBlock::enqueue_inverses(invertible, damping_there());
  for (std::size_t i = 0; i < factors.size(); ++i)
    findings_.note(to_index(doc::block_of_factor(factors[i])), doc::side_of_factor(factors[i]),
                   LateFindings::What::not_inverted, found[i].failed);
}

void Preconditioner::enqueue_taken_inverse(std::size_t i, FactorSide side, const at::Tensor& packed,
                                           const at::Tensor& there) {
  remember(i, side);
  blocks_[i]->enqueue_taken_inverse(side, packed, there, damping_there());
}

Preconditioner::Direction Preconditioner::enqueue_product(std::size_t i,
                                                          const at::Tensor& direction,
                                                          const at::Tensor& exists) const {
  const at::Tensor gradient = blocks_[i]->gradient();
  // Without a direction the gradient stays: 0, or NaN if it is not finite.
  const at::Tensor plain = gradient.mul(0).sum(at::kDouble);
  return {direction, 0, at::where(exists, enqueued_inner_product(direction, gradient), plain),
          exists};
}

Preconditioner::Direction Preconditioner::enqueue_direction(std::size_t i,
                                                            const at::Tensor& damping) const {
  const c10::NoGradGuard no_grad;
  const CurvatureBlock& block = *blocks_[i];
  const at::Tensor gradient = block.gradient();
  if (!block.has_inverse())  // nor has any been tried
    return enqueue_product(i, gradient, block.inverse_there());
  return enqueue_product(i, block.precondition(gradient, damping), block.inverse_there());
}

at::Tensor Preconditioner::enqueue_clip(const at::Tensor& q) const {
  const at::Tensor finite = at::isfinite(q).to(at::kDouble);
  const double kappa = options_.kl_clip->at(step_);
  if (kappa <= 0) return finite;
  const double scale = options_.gradient_scale.at(step_), rate = this->rate() / scale;
  const at::Tensor divergence = q.abs().mul(rate * rate);
  // Of nothing, the root is infinite.
  const at::Tensor nu = divergence.reciprocal().mul(kappa).sqrt().clamp_max(1);
  return at::where(finite.gt(0), nu, finite);
}

void Preconditioner::send_findings(const at::Tensor& q, const at::Tensor& nu) {
  findings_.send(step_, {q, nu});
}

/// The first one.
template <typename Throwing>
void Preconditioner::keep_late_failure(Throwing&& throwing) {
  if (late_failure_) return;
  try {
    throwing();
  } catch (...) {
    late_failure_ = std::current_exception();
  }
}

void Preconditioner::hear_findings(KfacStep& report) {
  while (const std::optional<LateFindings::Step> heard = findings_.take()) {
    if (heard->step == report.step) report.q = heard->numbers[0], report.nu = heard->numbers[1];
    for (const LateFindings::Finding& one : heard->findings) {
      const bool dropped = one.what == LateFindings::What::dropped;
      const char* const what = dropped ? kDropped : kNotInverted;
      note_failure(one.block, one.side, what);
      if (one.in_a_row < options_.max_failures) continue;
      keep_late_failure([&] {
        throw_failed_too_often(one.block, one.side, failure_in_words(one.block, one.side, what),
                               {one.in_a_row, options_.damping->at(heard->step)});
      });
    }
  }
}

}  // namespace linerate::torch_adapter
