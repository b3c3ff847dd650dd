#include "linerate/torch_adapter/kfac/curvature_step.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <limits>

#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {
template <typename Work>
void CurvatureStep::guarded(Work&& work) {
  try {
    work();
  } catch (const std::exception&) {  // LibTorch's, too
    if (!failure_) failure_ = std::current_exception();
  }
}

void CurvatureStep::check() const {
  if (const std::exception_ptr late = preconditioner_.take_late_failure())
    std::rethrow_exception(late);
  if (preconditioner_.factors_due()) {
    preconditioner_.collector().check();
    preconditioner_.warn_of_passes();
  }
}

void CurvatureStep::begin() {
  preconditioner_.undo();
  state_ = Open{Directions(preconditioner_.blocks().size())};
}

void CurvatureStep::fold(std::size_t block) {
  guarded([&] { preconditioner_.fold_batch(block); });
}

void CurvatureStep::fold(std::size_t block, const std::array<at::Tensor, 2>& sums) {
  guarded([&] { preconditioner_.fold_sums(block, sums); });
}

bool CurvatureStep::invert(std::size_t block, FactorSide side) {
  if (preconditioner_.enqueues()) return enqueue_inverse(block, side), true;
  bool succeeded = false;
  guarded([&] { succeeded = preconditioner_.update_inverse(block, side); });
  return succeeded;
}

void CurvatureStep::invert_diagonals(std::size_t block) {
  if (!preconditioner_.inverses_due()) return;
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    if (!preconditioner_.blocks()[block]->is_dense(side)) invert(block, side);
}

void CurvatureStep::precondition(std::size_t block) {
  if (preconditioner_.enqueues()) {
    if (preconditioner_.blocks()[block]->layer().weight.grad().defined())
      open().directions[block] = preconditioner_.enqueue_direction(block);
    return;
  }
  if (preconditioner_.can_precondition(block))
    open().directions[block] = preconditioner_.direction(block);
}

void CurvatureStep::take_direction(std::size_t b, const at::Tensor& values) {
  const CurvatureBlock& block = *preconditioner_.blocks()[b];
  const at::Tensor gradient = block.gradient();
  const at::Tensor direction = values.to(block.dtype()).reshape(gradient.sizes()).clone();
  open().directions[b] = {direction, inner_product(direction, gradient)};
}

void CurvatureStep::enqueue_taken_direction(std::size_t b, const at::Tensor& values,
                                            const at::Tensor& exists) {
  const CurvatureBlock& block = *preconditioner_.blocks()[b];
  const at::Tensor gradient = block.gradient();
  if (!gradient.defined()) return;
  const at::Tensor direction = values.to(block.dtype()).reshape(gradient.sizes());
  // What stands for none is not finite.
  open().directions[b] =
      preconditioner_.enqueue_product(b, at::where(exists, direction, 0.0), exists);
}

double CurvatureStep::product() const {
  const Directions& directions = std::get<Open>(state_).directions;
  double q = 0;
  for (std::size_t b = 0; b < directions.size(); ++b)
    q += directions[b] ? directions[b]->product : preconditioner_.plain_product(b);
  return q;
}

void CurvatureStep::clip() {
  if (preconditioner_.enqueues()) {
    const at::Tensor q = product_there();
    return enqueue_close(q, preconditioner_.enqueue_clip(q));
  }
  const double q = product();
  close(q, preconditioner_.clip(q));
}

KfacStep CurvatureStep::report() const {
  return {.step = preconditioner_.step(),
          .factors = preconditioner_.factors_due(),
          .inverses = preconditioner_.inverses_due(),
          .damping = preconditioner_.damping()};
}

void CurvatureStep::close(double q, std::optional<double> nu) {
  Open now = std::move(open());
  KfacStep done = report();
  done.q = q;
  for (std::size_t b = 0; b < now.directions.size(); ++b) {
    const LayerSpec& layer = preconditioner_.blocks()[b]->layer();
    if (!now.directions[b] && layer.weight.grad().defined()) done.plain.push_back(layer.name);
  }
  if (nu) {
    done.nu = *nu;
    state_ = Found{std::move(now.directions), std::move(done)};
  } else {
    state_ = Skipped{std::move(done)};
  }
}

at::Tensor CurvatureStep::product_there() const {
  std::vector<at::Tensor> products;
  for (const auto& found : std::get<Open>(state_).directions)
    if (found) products.push_back(found->product_there);
  if (!products.empty()) return at::stack(products).sum();
  const at::TensorOptions options = preconditioner_.blocks().front()->layer().weight.options();
  return at::zeros({}, options.dtype(at::kDouble));
}

void CurvatureStep::enqueue_close(const at::Tensor& q, const at::Tensor& nu) {
  Open now = std::move(open());
  KfacStep done = report();
  done.q = done.nu = std::numeric_limits<double>::quiet_NaN();
  state_ = Found{std::move(now.directions), std::move(done), q, nu};
}

void CurvatureStep::zero_if(const at::Tensor& infinite) {
  if (auto* const found = std::get_if<Found>(&state_))
    found->nu = found->nu.masked_fill(infinite, 0);
}

void CurvatureStep::keep() {
  if (std::holds_alternative<Open>(state_)) clip();  // no task does
  std::holds_alternative<Found>(state_) ? preconditioner_.keep() : preconditioner_.undo_but_count();
}

void CurvatureStep::drop() {
  preconditioner_.undo();
  // Where values are not read, directions were made before the ranks agreed.
  if (std::holds_alternative<Found>(state_)) state_ = Open{};
  failure_ = nullptr;
}

void CurvatureStep::await_gradients() {
  for (std::size_t b = 0; b < preconditioner_.blocks().size(); ++b) invert_diagonals(b);
  state_ = Arriving{};
}

void CurvatureStep::take_all() {
  if (!std::holds_alternative<Arriving>(state_)) return;
  state_ = Open{Directions(preconditioner_.blocks().size())};
  for (std::size_t b = 0; b < preconditioner_.blocks().size(); ++b) precondition(b);
  keep();
}

void CurvatureStep::end_arriving() {
  state_ = Open{};
  KfacStep unheard;
  preconditioner_.end_step(unheard);
}

KfacStep CurvatureStep::write() {
  const c10::NoGradGuard no_grad;
  if (auto* const skipped = std::get_if<Skipped>(&state_)) {
    Skipped now = std::move(*skipped);
    state_ = Open{};
    preconditioner_.skip_step(now.report);
    // LibTorch's optimizers leave a parameter without .grad, and its momentum, as it is.
    for (const at::Tensor& p : parameters_) p.mutable_grad().reset();
    return std::move(now.report);
  }
  if (!std::holds_alternative<Found>(state_))
    throw UsageError("K-FAC: step() without an exchange: call finish() between backward() and it");
  Found now = std::get<Found>(std::move(state_));
  state_ = Open{};
  preconditioner_.enqueues() ? enqueue_directions(now) : write_directions(now);
  if (preconditioner_.enqueues()) preconditioner_.hear_findings(now.report);
  preconditioner_.end_step(now.report);
  return std::move(now.report);
}

void CurvatureStep::write_directions(const Found& found) {
  for (std::size_t b = 0; b < found.directions.size(); ++b)
    if (const auto& one = found.directions[b])
      preconditioner_.blocks()[b]->write(one->direction, found.report.nu);
}

/// Layers without a direction keep their gradients. If nu is 0 none counts, wherever it belongs to.
void CurvatureStep::enqueue_directions(const Found& found) {
  const at::Tensor none = found.nu.eq(0);
  for (std::size_t b = 0; b < found.directions.size(); ++b) {
    const CurvatureBlock& block = *preconditioner_.blocks()[b];
    const auto& one = found.directions[b];
    if (!one || !block.layer().weight.grad().defined()) continue;
    block.write(at::where(one->exists, one->direction.mul(found.nu), block.gradient()), 1);
  }
  for (const at::Tensor& p : parameters_)
    if (p.grad().defined()) p.mutable_grad().masked_fill_(none, 0);
  preconditioner_.send_findings(found.q, found.nu);
}

KfacStep CurvatureStep::take() {
  const c10::NoGradGuard no_grad;
  const std::size_t blocks = preconditioner_.blocks().size();
  failure_ = nullptr;
  try {
    check();
    begin();
    for (std::size_t b = 0; preconditioner_.factors_due() && b < blocks; ++b) fold(b);
    for (std::size_t b = 0; preconditioner_.inverses_due() && b < blocks; ++b)
      for (const FactorSide side : {FactorSide::a, FactorSide::g})
        if (preconditioner_.blocks()[b]->is_dense(side)) invert(b, side);
    for (std::size_t b = 0; b < blocks; ++b) {
      invert_diagonals(b);
      precondition(b);
    }
    if (const std::exception_ptr failure = take_failure()) std::rethrow_exception(failure);
    keep();
    return write();
  } catch (...) {
    state_ = Open{};
    KfacStep unheard;
    preconditioner_.skip_step(unheard);
    throw;
  }
}

}  // namespace linerate::torch_adapter
