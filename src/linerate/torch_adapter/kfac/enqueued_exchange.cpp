// What a CurvatureExchange's tasks enqueue where values are not read. Whether the step counts is
// not known yet: ranks agree on that when all is enqueued, and a step that does not count is
// undone.
#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>

#include <limits>

#include "linerate/core/index.hpp"
#include "linerate/torch_adapter/kfac/curvature_exchange.hpp"

namespace linerate::torch_adapter {
namespace {

/// While it lives, the means that arrive are the .grads of their parameters.
class LentMeans {
 public:
  explicit LentMeans(std::vector<std::pair<at::Tensor, at::Tensor>> means)
      : own_(std::move(means)) {
    exchange();
  }
  ~LentMeans() { exchange(); }
  LentMeans(const LentMeans&) = delete;
  LentMeans& operator=(const LentMeans&) = delete;

 private:
  void exchange() {
    for (auto& [parameter, gradient] : own_) std::swap(parameter.mutable_grad(), gradient);
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> own_;
};

}  // namespace

void CurvatureExchange::enqueue_inverse(std::int32_t factor, const CurvaturePlan::Part& part) {
  const std::size_t b = to_index(doc::block_of_factor(factor));
  const FactorSide side = doc::side_of_factor(factor);
  const at::Tensor succeeded = step_.enqueue_inverse(b, side);
  if (part.payload < 0) return;
  status_of(part).copy_(succeeded.logical_not());
  const at::Tensor values = values_of(part);
  values.copy_(block_of(factor).packed_inverse(side));
  // Uses the bits that the others get.
  preconditioner().enqueue_taken_inverse(b, side, values, succeeded);
}

void CurvatureExchange::enqueue_taken_inverse(const CurvaturePlan::Part& part) {
  preconditioner().enqueue_taken_inverse(to_index(doc::block_of_factor(part.member)),
                                         doc::side_of_factor(part.member), values_of(part),
                                         status_of(part).eq(0));
}

void CurvatureExchange::enqueue_direction(const CurvaturePlan::Part& part, std::size_t block) {
  const LentMeans lent(gradients_.means(block));
  step_.invert_diagonals(block);
  step_.precondition(block);
  const auto& found = step_.direction(block);
  if (part.payload < 0) return;
  const at::Tensor values = values_of(part);
  if (!found) {
    values.fill_(kNoDirection);
    return;
  }
  const at::Tensor finite = at::isfinite(found->product_there);
  const at::Tensor none =
      at::where(found->exists, std::numeric_limits<double>::quiet_NaN(), kNoDirection);
  values.copy_(at::where(finite.logical_and(found->exists), found->direction.flatten(), none));
  step_.enqueue_taken_direction(block, values, found->exists);  // the bits that the others get
}

/// A layer without an inverse keeps its gradient; a direction that is not finite counts as 0.
void CurvatureExchange::enqueue_late_direction(std::size_t block, const at::Tensor& damping) const {
  const c10::NoGradGuard no_grad;
  const CurvatureBlock& layer = *preconditioner().blocks()[block];
  if (!layer.layer().weight.grad().defined()) return;
  const Preconditioner::Direction found = preconditioner().enqueue_direction(block, damping);
  const at::Tensor chosen = at::where(found.exists, found.direction, layer.gradient());
  layer.write(chosen.masked_fill(at::isfinite(found.product_there).logical_not(), 0), 1);
}

void CurvatureExchange::enqueue_taken_direction(const CurvaturePlan::Part& part) {
  const std::size_t b = to_index(part.member);
  const LentMeans lent(gradients_.means(b));
  const at::Tensor values = values_of(part);
  step_.enqueue_taken_direction(b, values, values.select(0, 0).ne(kNoDirection));
}

}  // namespace linerate::torch_adapter
