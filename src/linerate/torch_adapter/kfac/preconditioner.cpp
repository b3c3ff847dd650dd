#include "linerate/torch_adapter/kfac/preconditioner.hpp"

#include <ATen/Dispatch.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/log.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"
#include "linerate/torch_adapter/kfac/kl_clip.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr std::array kSides{FactorSide::a, FactorSide::g};

std::size_t side_index(FactorSide side) { return to_index(side); }

void check_options(const KfacOptions& o) {
  if (!o.loss_average)
    throw UsageError(
        "K-FAC: loss_average is not set; say what the loss divides its sum by: "
        "LossAverage{LossAverage::Over::batch} for a mean over samples");
  if (!o.learning_rate && !o.optimizer && o.kl_clip->at(0) > 0)
    throw UsageError(
        "K-FAC: neither optimizer nor learning_rate is set; the KL clip needs the optimizer, or "
        "its rate as a function of the step, or kl_clip = 0");
  if (o.conv_subsampling < 1 ||
      (o.conv_subsampling > 1 && o.shared_positions == SharedPositions::reduce))
    throw UsageError(
        fmt::format("K-FAC: conv_subsampling = {}: expected 1 or, with expanded positions, more",
                    o.conv_subsampling));
  if (o.max_failures < 1) throw UsageError("K-FAC: max_failures: expected 1 or more");
  if (o.accumulate && o.accumulate->constant().value_or(1) < 1)
    throw UsageError(
        fmt::format("K-FAC: accumulate = {}: expected 1 backward pass in a step or more",
                    *o.accumulate->constant()));
}

Blocks make_blocks(const std::vector<LayerSpec>& layers, const KfacOptions& o) {
  check_options(o);
  Blocks blocks;
  for (const LayerSpec& layer : layers)
    blocks.push_back(make_block(layer, {o.method, o.shared_positions, o.conv_subsampling}));
  return blocks;
}

bool is_due(const ScheduledValue& interval, std::int64_t step) {
  const auto steps = static_cast<std::int64_t>(interval.at(step));
  if (steps < 1)
    throw UsageError(fmt::format("K-FAC: an interval of {} steps in step {}: expected 1 or more",
                                 interval.at(step), step));
  return step % steps == 0;
}

std::string range_of(const at::Tensor& packed) {
  if (!packed.defined() || packed.numel() == 0) return "nothing in it";
  return fmt::format("values from {:g} to {:g}", packed.min().item<double>(),
                     packed.max().item<double>());
}

}  // namespace

at::Tensor enqueued_inner_product(const at::Tensor& x, const at::Tensor& y) {
  return x.to(at::kDouble).mul(y).sum();
}

double inner_product(const at::Tensor& x, const at::Tensor& y) {
  if (!runs_on_host(x)) return enqueued_inner_product(x, y).item<double>();
  const at::Tensor a = x.contiguous(), b = y.contiguous();
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "inner_product", [&] {
    const scalar_t* const p = a.const_data_ptr<scalar_t>();
    const scalar_t* const q = b.const_data_ptr<scalar_t>();
    // Four sums: one alone waits for each addition before the next.
    std::array<double, 4> sums{};
    const std::int64_t n = a.numel();
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4)
      for (std::int64_t k = 0; k < 4; ++k)
        sums[to_index(k)] += static_cast<double>(p[i + k]) * static_cast<double>(q[i + k]);
    for (; i < n; ++i) sums[0] += static_cast<double>(p[i]) * static_cast<double>(q[i]);
    sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  });
  return sum;
}

Preconditioner::Preconditioner(const std::vector<LayerSpec>& layers, KfacOptions options)
    : said_(std::move(options)),
      options_(with_defaults(said_)),
      blocks_(make_blocks(layers, options_)),
      collector_(blocks_, {options_.fisher, *options_.loss_average, options_.seed}),
      optimizer_(options_.optimizer) {
  set_enqueues(false);
  begin_step();
}

void Preconditioner::adopt(const plan::Kfac& kfac) {
  KfacOptions all = said_;  // intervals are those of the Plan's schedule
  if (!all.damping) all.damping = kfac.damping;
  if (!all.decay) all.decay = kfac.decay;
  if (!all.kl_clip) all.kl_clip = kfac.clips ? kfac.kl : 0.0;
  if (!all.accumulate && kfac.accumulate) all.accumulate = static_cast<double>(*kfac.accumulate);
  all = with_defaults(std::move(all));
  check_options(all);
  options_ = std::move(all);
}

void Preconditioner::begin_step() {
  if (factors_due())
    collector_.begin(step_,
                     [this, step = step_] { return options_.loss_scale.at(step) / accumulated(); });
  else
    collector_.end();
}

bool Preconditioner::factors_due() const {
  return schedule_ ? schedule_(step_).factors : is_due(*options_.factor_interval, step_);
}
bool Preconditioner::inverses_due() const {
  return schedule_ ? schedule_(step_).inverses : is_due(*options_.inverse_interval, step_);
}

void Preconditioner::follow(std::function<Due(std::int64_t)> schedule) {
  schedule_ = std::move(schedule);
  begin_step();
}

void Preconditioner::set_enqueues(bool yes) { enqueues_ = yes || !is_on_cpu(); }

void Preconditioner::warn_of_passes() {
  const int passes = collector_.passes();
  const double expected = accumulated();
  if (passes == 0 || passes == expected || warned_passes_) return;
  const bool scale_says_it =
      std::abs(options_.loss_scale.constant().value_or(0) * passes - 1) < 1e-9;
  const bool is_sum = options_.loss_average->over == LossAverage::Over::sum;
  const bool is_drawn = options_.fisher != Fisher::empirical;  // a draw has no scale
  if (!options_.accumulate && (scale_says_it || is_sum || is_drawn)) return;
  warned_passes_ = true;
  log::warning(fmt::format(
      "K-FAC: step {}: found {} backward passes, expected {}: {} (said once)", step_, passes,
      options_.accumulate ? fmt::format("accumulate={}", expected)
                          : "1, as accumulate= is not said",
      options_.accumulate
          ? fmt::format("factors are right if each loss is divided by {}", expected)
          : fmt::format(
                "if each loss is divided by {0}, say accumulate={0}, as an option or in the "
                "strategy's kfac(...); the factors of losses that are added up undivided "
                "are those of their mean",
                passes)));
}

void Preconditioner::fold_sums(std::size_t i, const std::array<at::Tensor, 2>& packed) {
  if (enqueues_) return enqueue_fold(i, packed);
  const CurvatureBlock& block = *blocks_[i];
  std::array<double, 2> divisors{};
  for (const FactorSide side : kSides) {
    const std::int64_t elements = block.packed_elements(side);
    if (elements == 0) continue;
    const at::Tensor counts = packed[side_index(side)].narrow(0, elements, doc::kFactorCounts);
    if (counts[0].item<double>() <= 0) return;
    divisors[side_index(side)] = counts[1].item<double>();
  }
  for (const FactorSide side : kSides)
    if (const std::int64_t elements = block.packed_elements(side); elements > 0)
      fold(i, side,
           packed[side_index(side)].narrow(0, 0, elements).div(divisors[side_index(side)]));
}

void Preconditioner::fold_batch(std::size_t i) {
  const CurvatureBlock& block = *blocks_[i];
  std::array<at::Tensor, 2> packed;
  for (const FactorSide side : kSides) {
    if (block.packed_elements(side) == 0) continue;
    if (!block.has_batch(side)) return;
    packed[side_index(side)] = block.packed_batch(side);
  }
  fold_sums(i, packed);
}

void Preconditioner::fold(std::size_t i, FactorSide side, const at::Tensor& packed) {
  CurvatureBlock& block = *blocks_[i];
  remember(i, side);
  if (!all_finite(packed)) {
    ++block.dropped(side);
    note_failure(i, side, kDropped);
    return require_below_limit(i, side, block.dropped(side));
  }
  block.dropped(side) = 0;
  block.update_average(side, packed, options_.decay->at(step_), options_.exact_resume);
}

bool Preconditioner::update_inverse(std::size_t i, FactorSide side) {
  CurvatureBlock& block = *blocks_[i];
  if (block.packed_elements(side) == 0) return false;
  for (const FactorSide other : kSides)
    if (block.packed_elements(other) > 0 && !block.average(other).defined()) return false;
  remember(i, side);
  const bool succeeded = block.compute_inverse(side, damping());
  note_inverse(i, side, succeeded);
  if (!succeeded) require_below_limit(i, side, block.failures(side));
  return succeeded;
}

void Preconditioner::take_inverse(std::size_t i, FactorSide side, const at::Tensor& packed) {
  remember(i, side);
  if (packed.defined()) blocks_[i]->set_packed_inverse(side, packed, damping());
  note_inverse(i, side, packed.defined());
}

void Preconditioner::note_inverse(std::size_t i, FactorSide side, bool succeeded) {
  CurvatureBlock& block = *blocks_[i];
  block.failures(side) = succeeded ? 0 : block.failures(side) + 1;
  if (!succeeded) note_failure(i, side, kNotInverted);
}

std::string Preconditioner::failure_in_words(std::size_t i, FactorSide side,
                                             const char* what) const {
  const CurvatureBlock& block = *blocks_[i];
  return fmt::format("layer \"{}\", factor {} ({} x {}): {}", block.layer().name,
                     side == FactorSide::a ? "A" : "G", block.dim(side), block.dim(side), what);
}

void Preconditioner::note_failure(std::size_t i, FactorSide side, const char* what) {
  failures_.emplace(Factor{i, side}, failure_in_words(i, side, what));
}

void Preconditioner::take_failures(KfacStep& report) {
  for (const auto& [factor, what] : std::exchange(failures_, {})) report.failures.push_back(what);
}

void Preconditioner::require_below_limit(std::size_t i, FactorSide side, int in_a_row) const {
  if (in_a_row >= options_.max_failures)
    throw_failed_too_often(i, side, std::prev(failures_.upper_bound({i, side}))->second,
                           {in_a_row, damping()});
}

void Preconditioner::throw_failed_too_often(std::size_t i, FactorSide side, const std::string& what,
                                            const InARow& row) const {
  throw InputError(fmt::format(
      "K-FAC: step {}: {}, {} times in a row; the running average has {}, damping {:g}: use more "
      "damping, a lower learning rate, or skip the layer",
      step_, what, row.failures, range_of(blocks_[i]->average(side)), row.damping));
}

bool Preconditioner::can_precondition(std::size_t i) const {
  return blocks_[i]->has_inverse() && blocks_[i]->layer().weight.grad().defined();
}

Preconditioner::Direction Preconditioner::direction(std::size_t i, double damping) const {
  const c10::NoGradGuard no_grad;
  const at::Tensor gradient = blocks_[i]->gradient();
  Direction found{blocks_[i]->precondition(gradient, damping), 0};
  found.product = inner_product(found.direction, gradient);
  return found;
}

double Preconditioner::plain_product(std::size_t i) const {
  const at::Tensor gradient = blocks_[i]->gradient();
  return gradient.defined() && !all_finite(gradient) ? std::numeric_limits<double>::quiet_NaN() : 0;
}

std::optional<double> Preconditioner::clip(double q) const {
  const double kappa = options_.kl_clip->at(step_);
  if (kappa <= 0) return kl_clip_factor(q, 0, 0);
  const double scale = options_.gradient_scale.at(step_);
  return kl_clip_factor(q / (scale * scale), rate(), kappa);
}

double Preconditioner::rate() const {
  return options_.learning_rate ? options_.learning_rate(step_) : rate_of(*optimizer_);
}

void Preconditioner::bound_update() {
  if (!(optimizer_ || options_.learning_rate)) return;
  const double now = rate(), before = std::exchange(last_rate_, now);
  if (options_.kl_clip->at(step_) <= 0) return;
  if (optimizer_) return bound_momentum(*optimizer_, blocks_, before, now);
  if (!(before > 0 && now > before) || std::exchange(warned_unbound_, true)) return;
  log::warning(fmt::format(
      "K-FAC: step {}: the learning rate has risen from {:g} to {:g}: the clip does not "
      "hold for what momentum makes of earlier directions, unless K-FAC knows the optimizer",
      step_, before, now));
}

void Preconditioner::end_step(KfacStep& report) {
  bound_update();
  take_failures(report);
  keep();
  ++step_;
  discard_batch();
}

void Preconditioner::skip_step(KfacStep& report) {
  report.skipped = true;
  take_failures(report);
  undo_but_count();
  discard_batch();
}

void Preconditioner::discard_batch() {
  for (const auto& block : blocks_) block->discard_batch();
  begin_step();
}

void Preconditioner::remember(std::size_t i, FactorSide side) {
  before_.try_emplace({i, side}, blocks_[i]->curvature(side));
}

void Preconditioner::undo() {
  for (auto& [side, before] : before_)
    blocks_[side.first]->set_curvature(side.second, std::move(before));
  before_.clear();
  failures_.clear();
  findings_.forget_notes();
}

void Preconditioner::undo_but_count() {
  for (auto& [side, before] : before_) {
    const CurvatureBlock::Curvature& now = blocks_[side.first]->curvature(side.second);
    before.failures = now.failures, before.dropped = now.dropped;
  }
  const auto said = failures_;
  undo();
  failures_ = said;
}

KfacState Preconditioner::save() const {
  KfacState state;
  state.step = step_;
  state.rate = last_rate_;
  for (const auto& block : blocks_)
    state.layers.push_back(
        {block->layer().name, block->save(FactorSide::a), block->save(FactorSide::g)});
  return state;
}

void Preconditioner::load(const KfacState& state, const HoldsOfBlock& holds) {
  load_blocks(state, holds);
  last_rate_ = state.rate;
  step_ = state.step;
  discard_batch();
}

void Preconditioner::load_blocks(const KfacState& state, const HoldsOfBlock& holds) {
  const c10::NoGradGuard no_grad;
  if (state.layers.size() != blocks_.size())
    throw InputError(fmt::format("K-FAC state: expected {} layers, found {}", blocks_.size(),
                                 state.layers.size()));
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    KfacState::Layer layer = state.layers[i];
    if (layer.name != blocks_[i]->layer().name)
      throw InputError(fmt::format("K-FAC state: expected layer \"{}\", found \"{}\"",
                                   blocks_[i]->layer().name, layer.name));
    const Holds mine = holds(i);
    if (mine == Holds::nothing) layer.a = layer.g = {};
    for (KfacState::Factor* factor : {&layer.a, &layer.g}) {
      if (mine == Holds::inverses) continue;
      factor->has_inverse = false;
      factor->inverted.reset();
    }
    blocks_[i]->load(FactorSide::a, layer.a);
    blocks_[i]->load(FactorSide::g, layer.g);
    blocks_[i]->restore_inverses();
  }
  keep();
}

KfacMemory Preconditioner::memory() const {
  KfacMemory all;
  for (const auto& block : blocks_) {
    const CurvatureBlock::Memory memory = block->memory();
    all.statistics += memory.sums;
    all.factors += memory.averages;
    all.inverses += memory.inverses;
  }
  return all;
}

}  // namespace linerate::torch_adapter
