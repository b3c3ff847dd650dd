// One rank's K-FAC: the blocks of all layers, with what a step does to them. KFAC::step() calls
// take(), which does a whole step on one rank. In a job of several ranks CurvatureExchange calls
// the parts, in the order of a Plan's tasks.
//
// A step goes through phases. `open`: factors are folded and inverted, and gradients become
// directions. clip() then finds nu, and the phase is `found`. write() puts nu times the directions
// into the .grads, and ends the step. keep() makes it `skipped` if nu is 0, as it is for gradients
// that are not finite. `arriving` is for plans whose means come under the next forward pass.
//
// A step may be given up until keep(). So remember() keeps the tensors of averages and inverses
// from before, and undo() brings them back. Example of three steps: step 1 counts. In step 2 a
// gradient is infinite, so averages and inverses are those of step 1 again. Step 3 goes on from
// these, and its number is still 2 to K-FAC, because a skipped step does not count.
#include "linerate/kfac/preconditioner.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/kfac/collector.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac_options.hpp"
#include "linerate/plan/kfac/kfac.hpp"

namespace linerate::torch_adapter {
namespace {

Blocks make_blocks(const std::vector<LayerSpec>& layers, const KfacOptions& o) {
  Blocks blocks;
  for (const LayerSpec& layer : layers)
    blocks.push_back(make_block(layer, {o.method, o.shared_positions, o.conv_subsampling}));
  return blocks;
}

std::string range_of(const at::Tensor& packed) {
  if (!packed.defined() || packed.numel() == 0) return "nothing in it";
  return fmt::format("values from {:g} to {:g}", packed.min().item<double>(),
                     packed.max().item<double>());
}

/// The numbers of these blocks.
std::vector<std::int32_t> blocks_between(std::int32_t first, std::int32_t last) {
  std::vector<std::int32_t> all(to_index(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

}  // namespace

Preconditioner::Preconditioner(const std::vector<LayerSpec>& layers,
                               std::vector<at::Tensor> parameters, KfacOptions given)
    : said_(std::move(given)),
      options_(checked_options(said_)),
      optimizer_(options_.optimizer),
      blocks_(make_blocks(layers, options_)),
      collector_(blocks_, {options_.fisher, *options_.loss_average, options_.seed}),
      parameters_(std::move(parameters)) {
  set_enqueues(false);
  begin_step();
}

void Preconditioner::set_enqueues(bool yes) {
  enqueues_ = yes || std::any_of(blocks_.begin(), blocks_.end(),
                                 [](const auto& block) { return !block->layer().weight.is_cpu(); });
}

void Preconditioner::follow(Schedule schedule) {
  schedule_ = std::move(schedule);
  begin_step();
}

void Preconditioner::begin_step() {
  if (factors_due())
    collector_.begin(step_,
                     [this, step = step_] { return options_.loss_scale.at(step) / accumulated(); });
  else
    collector_.end();
}

CurvatureBlock::Factor Preconditioner::factor(std::int32_t f) const {
  return {blocks_[to_index(doc::block_of_factor(f))].get(), doc::side_of_factor(f)};
}

std::vector<CurvatureBlock::Packed> Preconditioner::packed(
    std::span<const std::int32_t> factors, std::span<const at::Tensor> values) const {
  std::vector<CurvatureBlock::Packed> all;
  for (std::size_t k = 0; k < factors.size(); ++k) all.push_back({factor(factors[k]), values[k]});
  return all;
}

at::Tensor Preconditioner::damping_there() const {
  return at::full({}, damping(), blocks_.front()->layer().weight.options().dtype(at::kDouble));
}

std::vector<std::int32_t> Preconditioner::all_blocks() const {
  return blocks_between(0, static_cast<std::int32_t>(blocks_.size()) - 1);
}

/// The factors of these blocks, block by block, for which which(block, side) is true.
template <typename Which>
std::vector<std::int32_t> Preconditioner::factors_of(std::span<const std::int32_t> blocks,
                                                     Which&& which) const {
  std::vector<std::int32_t> factors;
  for (const std::int32_t b : blocks)
    for (const FactorSide side : {FactorSide::a, FactorSide::g})
      if (const CurvatureBlock& block = *blocks_[to_index(b)];
          block.packed_elements(side) > 0 && which(block, side))
        factors.push_back(doc::factor_index(b, side));
  return factors;
}

// ---- a step, from its beginning to its end ----

KfacStep Preconditioner::take() {
  const c10::NoGradGuard no_grad;
  KfacStep done;
  try {
    check();
    begin();
    if (factors_due()) fold_batches(0, static_cast<std::int32_t>(blocks_.size()) - 1);
    if (inverses_due()) invert(factors_of(all_blocks(), std::mem_fn(&CurvatureBlock::is_dense)));
    invert_diagonals(all_blocks());
    precondition(all_blocks());
    keep();
    done = write();
  } catch (...) {
    end_step(/*counts=*/false);
    throw;
  }
  if (const std::exception_ptr failure = take_failure()) std::rethrow_exception(failure);
  return done;
}

void Preconditioner::check() {
  if (const std::exception_ptr failure = take_failure()) std::rethrow_exception(failure);
  if (!factors_due()) return;
  collector_.check();
  warn_of_passes(collector_.passes());
  collector_.end();  // which looks at every operator, so at those of the step itself, too
}

void Preconditioner::begin() {
  undo();
  round_ = {};
  phase_ = Phase::open;
}

void Preconditioner::fold_batches(std::int32_t first_block, std::int32_t last_block) {
  const std::vector<std::int32_t> factors =
      factors_of(blocks_between(first_block, last_block), std::mem_fn(&CurvatureBlock::has_batch));
  if (factors.empty()) return;
  std::vector<at::Tensor> sums;
  for (const std::int32_t f : factors) {
    const auto& [block, side] = factor(f);
    sums.push_back(at::empty({block->packed_elements(side) + doc::kFactorCounts},
                             block->layer().weight.options().dtype(block->dtype())));
  }
  CurvatureBlock::pack_batches(packed(factors, sums));
  fold(factors, sums);
}

/// A layer's averages are updated when the sums of both its sides are there. A layer that was not
/// used in this step has no batch, and its averages stay. A sum that is not finite is dropped, on
/// every rank alike, because all have the same sums.
void Preconditioner::fold(const std::vector<std::int32_t>& factors,
                          const std::vector<at::Tensor>& sums) {
  std::vector<std::int32_t> folded;
  std::vector<at::Tensor> values;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    round_.sums[factors[k]] = sums[k];
    const std::int32_t block = doc::block_of_factor(factors[k]);
    const std::vector<std::int32_t> sides =
        factors_of({&block, 1}, [](const CurvatureBlock&, FactorSide) { return true; });
    if (!std::all_of(sides.begin(), sides.end(),
                     [this](std::int32_t f) { return round_.sums.contains(f); }))
      continue;
    for (const std::int32_t f : sides) {
      folded.push_back(f);
      values.push_back(round_.sums.extract(f).mapped());
    }
  }
  if (folded.empty()) return;
  remember();
  const at::Tensor dropped = CurvatureBlock::update_averages(
      packed(folded, values), options_.decay->at(step_), options_.exact_resume);
  round_.notes.push_back({Finding::dropped, folded, dropped});
}

CurvatureBlock::Inverted Preconditioner::invert(const std::vector<std::int32_t>& factors,
                                                std::span<const at::Tensor> sent,
                                                const CurvatureBlock::Timed& timed) {
  if (factors.empty()) return {};
  remember();
  std::vector<CurvatureBlock::Factor> all;
  for (const std::int32_t f : factors) all.push_back(factor(f));
  CurvatureBlock::Inverted found = CurvatureBlock::invert(all, damping_there(), sent, timed);
  round_.notes.push_back({Finding::not_inverted, factors, found.failed});
  return found;
}

void Preconditioner::invert_diagonals(std::span<const std::int32_t> blocks) {
  if (!inverses_due()) return;
  invert(factors_of(
      blocks, [](const CurvatureBlock& block, FactorSide side) { return !block.is_dense(side); }));
}

void Preconditioner::take_inverses(const std::vector<std::int32_t>& factors,
                                   std::span<const at::Tensor> inverses, const at::Tensor& there) {
  remember();
  const at::Tensor missing =
      CurvatureBlock::take_inverses(packed(factors, inverses), there, damping_there());
  round_.notes.push_back({Finding::not_inverted, factors, missing});
}

/// The blocks that have gradients, in sets: on a device, blocks of one shape together; on the CPU,
/// each alone.
std::vector<Preconditioner::Directed> Preconditioner::alike(
    std::span<const std::int32_t> blocks) const {
  using Kind =
      std::tuple<BlockKind, std::int64_t, std::int64_t, int, bool, at::ScalarType, std::int32_t>;
  std::map<Kind, std::size_t> known;
  std::vector<Directed> sets;
  for (const std::int32_t b : blocks) {
    CurvatureBlock& block = *blocks_[to_index(b)];
    if (!block.layer().weight.grad().defined()) continue;
    const bool alone = runs_on_host(block.layer().weight);
    const doc::Block& shape = block.shape();
    const Kind kind{
        shape.kind,    shape.a,       shape.g, shape.groups, block.layer().bias.defined(),
        block.dtype(), alone ? b : -1};
    const auto [place, is_new] = known.try_emplace(kind, sets.size());
    if (is_new) sets.emplace_back();
    sets[place->second].members.push_back(b);
    sets[place->second].blocks.push_back(&block);
  }
  return sets;
}

void Preconditioner::precondition(std::span<const std::int32_t> blocks) {
  const at::Tensor damping = damping_there();
  for (Directed& one : alike(blocks)) {
    one.found = CurvatureBlock::directions(one.blocks, damping);
    round_.directed.push_back(std::move(one));
  }
}

CurvatureBlock::Directions Preconditioner::direction(std::int32_t b) const {
  const std::vector<Directed> alone = alike({&b, 1});
  if (alone.empty()) return {};
  return CurvatureBlock::directions(alone.front().blocks, damping_there());
}

/// Directions of other ranks' layers, in the sets in which own ones are made, so that
/// write() treats them alike.
void Preconditioner::take_directions(std::span<const std::int32_t> blocks,
                                     const std::vector<at::Tensor>& values,
                                     const at::Tensor& exist) {
  std::map<std::int32_t, std::size_t> place;
  for (std::size_t k = 0; k < blocks.size(); ++k) place[blocks[k]] = k;
  const std::vector<at::Tensor> each = exist.unbind();
  for (Directed& one : alike(blocks)) {
    std::vector<at::Tensor> theirs, there;
    for (const std::int32_t b : one.members)
      theirs.push_back(values[place[b]]), there.push_back(each[place[b]]);
    one.found = CurvatureBlock::taken_directions(one.blocks, theirs, stacked(there));
    round_.directed.push_back(std::move(one));
  }
}

/// The KL clip: q sums <direction, gradient> over all layers, and nu scales all directions
/// (collector.hpp). In a shared step the learning rate is divided by the gradients' scale, because
/// gradients are still multiplied by it.
void Preconditioner::clip() {
  // Sums in the layers' order, whatever order a Plan has, because the order decides how sums round.
  std::sort(round_.directed.begin(), round_.directed.end(),
            [](const Directed& x, const Directed& y) { return x.members < y.members; });
  std::vector<at::Tensor> products;
  for (const Directed& one : round_.directed) products.push_back(one.found.products);
  round_.q = products.empty() ? damping_there().mul(0) : at::cat(products).sum();
  const double scale = options_.gradient_scale.at(step_), kappa = options_.kl_clip->at(step_);
  round_.nu = kl_clip_factor(round_.q, kappa > 0 ? rate() / scale : 0, kappa);
  phase_ = Phase::found;
}

void Preconditioner::zero_if(const at::Tensor& infinite) {
  if (phase_ == Phase::found) round_.nu = round_.nu.masked_fill(infinite, 0);
}

void Preconditioner::keep() {
  if (phase_ == Phase::open) clip();  // no task does
  if (enqueues_ || round_.nu.item<double>() != 0) return before_.clear();
  undo();
  phase_ = Phase::skipped;
}

void Preconditioner::drop() {
  undo();
  round_.notes.clear();
  // On a device directions were made before the ranks agreed.
  if (phase_ == Phase::found) phase_ = Phase::open;
}

/// Writes nu times the directions into .grad. If nu is 0 no gradient counts, neither of
/// preconditioned layers nor of others.
KfacStep Preconditioner::write() {
  const c10::NoGradGuard no_grad;
  if (phase_ == Phase::skipped) {
    // LibTorch's optimizers leave a parameter without .grad, and its momentum, as it is.
    for (const at::Tensor& p : parameters_) p.mutable_grad().reset();
    return end_step(/*counts=*/false);
  }
  if (phase_ != Phase::found)
    throw UsageError(
        "K-FAC: step() without an exchange; call finish() between backward() and step()");
  const at::Tensor moves = round_.nu.ne(0.0);
  std::set<const void*> written;
  for (Directed& one : round_.directed) {
    auto& [gradients, directions, exist, products] = one.found;
    const std::int64_t n = std::ssize(one.blocks);
    const auto rows = [n](const at::Tensor& all) { return all.reshape({n, -1}); };
    at::Tensor chosen =
        choice(exist.unsqueeze(1), rows(directions.mul_(round_.nu)), rows(gradients));
    if (enqueues_) chosen = at::where(moves, chosen, 0.0);
    CurvatureBlock::write(one.blocks, chosen.view(gradients.sizes()));
    round_.notes.push_back({Finding::plain, one.members, exist.bitwise_not()});
    for (const CurvatureBlock* const block : one.blocks)
      for (const at::Tensor& p : {block->layer().weight, block->layer().bias})
        if (p.defined()) written.insert(p.unsafeGetTensorImpl());
  }
  if (enqueues_) {
    const at::Tensor none = moves.bitwise_not();
    for (const at::Tensor& p : parameters_)
      if (p.grad().defined() && !written.contains(p.unsafeGetTensorImpl()))
        p.mutable_grad().masked_fill_(none, 0);
  }
  return end_step(/*counts=*/true);
}

// ---- gradients that arrive under the next forward pass ----

void Preconditioner::await_gradients() {
  invert_diagonals(all_blocks());
  phase_ = Phase::arriving;
}

void Preconditioner::take_all() {
  if (phase_ != Phase::arriving) return;
  phase_ = Phase::open;
  precondition(all_blocks());
  keep();
}

void Preconditioner::end_arriving() {
  round_.q = round_.nu = damping_there();  // nobody hears of them
  end_step(/*counts=*/true);
}

/// A direction that is not finite becomes zeros, in place of a step that is skipped: other layers'
/// weights have moved already.
at::Tensor Preconditioner::update_late(std::int32_t b, const at::Tensor& damping) const {
  const c10::NoGradGuard no_grad;
  const std::vector<Directed> alone = alike({&b, 1});
  if (alone.empty()) return at::full({}, true, at::kBool);
  const auto found = CurvatureBlock::directions(alone.front().blocks, damping);
  const at::Tensor finite = at::isfinite(found.products);
  const at::Tensor kept = choice(found.exist.view({-1, 1, 1}), found.directions, found.gradients);
  CurvatureBlock::write(alone.front().blocks, at::where(finite.view({-1, 1, 1}), kept, 0.0));
  return finite[0];
}

// ---- reports ----

std::string Preconditioner::in_words(Finding what, std::int32_t f) const {
  const auto& [block, side] = factor(f);
  return fmt::format("layer \"{}\", factor {} ({} x {}): {}", block->layer().name,
                     side == FactorSide::a ? "A" : "G", block->dim(side), block->dim(side),
                     what == Finding::dropped ? "a batch's factor is not finite and was dropped"
                                              : "its inverse failed and the old one is kept");
}

/// Joins the step's notes to one vector of f64, which is copied to the host without a wait. For
/// example a step notes two bool tensors of 4 and 3 elements. Then 9 numbers are sent, q and nu
/// first.
void Preconditioner::send_notes() {
  std::vector<at::Tensor> is_so;
  for (Note& note : round_.notes) is_so.push_back(std::exchange(note.is_so, {}));
  std::vector<at::Tensor> all{at::stack({round_.q, round_.nu})};
  if (!is_so.empty()) all.push_back(at::cat(is_so).to(at::kDouble));
  sent_.push_back({step_, std::exchange(round_.notes, {})});
  sent_values_.ask(at::cat(all));
}

/// Takes notes of this step and of earlier ones that have come by now, and counts for each member
/// how often in a row it was so. The first failure too many is kept.
void Preconditioner::hear(KfacStep& report) {
  std::multimap<std::int32_t, std::string> failures;  // in the order of the factors
  while (const std::optional<at::Tensor> come = sent_values_.take()) {
    const auto [step, notes] = std::move(sent_.front());
    sent_.pop_front();
    const double* value = come->const_data_ptr<double>();
    const bool is_own = step == report.step;
    if (is_own) report.q = value[0], report.nu = value[1];
    value += 2;
    for (const Note& note : notes)
      for (const std::int32_t member : note.members) {
        int& in_a_row = in_a_row_[{note.what, member}];
        in_a_row = *value++ != 0 ? in_a_row + 1 : 0;
        if (in_a_row == 0) continue;
        if (note.what == Finding::plain) {
          if (is_own) report.plain.push_back(blocks_[to_index(member)]->layer().name);
          continue;
        }
        failures.emplace(member, in_words(note.what, member));
        if (in_a_row < options_.max_failures || failure_) continue;
        const auto& [block, side] = factor(member);
        failure_ = std::make_exception_ptr(InputError(fmt::format(
            "K-FAC: step {}: {}, {} times in a row; the running average has {}, damping {:g}. Use "
            "more damping or a lower learning rate, or skip the layer",
            step, in_words(note.what, member), in_a_row, range_of(block->average(side)),
            options_.damping->at(step))));
      }
  }
  for (auto& [factor, what] : failures) report.failures.push_back(std::move(what));
}

// ---- the end of a step ----

/// Reports the step and ends it. A step does not count if its gradients were not finite. Then
/// averages and inverses are those of the step before, and the next batch takes this one's place.
/// Failures are counted all the same.
KfacStep Preconditioner::end_step(bool counts) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  KfacStep done{.step = step_,
                .factors = factors_due(),
                .inverses = inverses_due(),
                .skipped = !counts,
                .q = kUnknown,
                .nu = kUnknown,
                .damping = damping()};
  if (round_.q.defined()) {
    send_notes();
    hear(done);
  }
  if (counts) {
    bound_update();
    ++step_;
  } else {
    undo();
  }
  phase_ = Phase::open;
  round_ = {};
  before_.clear();
  discard_batch();
  return done;
}

void Preconditioner::discard_batch() {
  for (const auto& block : blocks_) block->discard_batch();
  begin_step();
}

void Preconditioner::remember() {
  if (!before_.empty()) return;
  for (const auto& block : blocks_) before_.push_back(block->known());
}

void Preconditioner::undo() {
  for (std::size_t b = 0; b < before_.size(); ++b) blocks_[b]->set_known(before_[b]);
  before_.clear();
}

// ---- state ----

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
  before_.clear();
}

KfacMemory Preconditioner::memory() const {
  KfacMemory all;
  for (const auto& block : blocks_) block->add_memory(all);
  return all;
}

// The part of K-FAC that follows from options and the number of the step: whether factors and
// inverses are due, the damping, the learning rate. An option that the program set wins over the
// strategy's, and that over the default. So the options as set (`said_`) are kept, and adopt()
// begins from them again for each Plan.

namespace {

/// Example: an interval of 10 is due in steps 0, 10 and 20.
bool is_due(const ScheduledValue& interval, std::int64_t step) {
  const auto steps = static_cast<std::int64_t>(interval.at(step));
  if (steps < 1)
    throw UsageError(fmt::format("K-FAC: an interval of {} steps in step {}: expected 1 or more",
                                 interval.at(step), step));
  return step % steps == 0;
}

}  // namespace

void Preconditioner::adopt(const plan::Kfac& kfac) {
  KfacOptions all = said_;
  fill_tuned(all, kfac, /*intervals=*/false);  // these are those of the Plan's schedule
  options_ = checked_options(all);
}

void Preconditioner::stop_sharing() {
  collector_.set_listener({});
  options_ = with_defaults(said_);
  follow({});
  set_enqueues(false);
}

bool Preconditioner::factors_due() const {
  return schedule_ ? schedule_(step_).factors : is_due(*options_.factor_interval, step_);
}
bool Preconditioner::inverses_due() const {
  return schedule_ ? schedule_(step_).inverses : is_due(*options_.inverse_interval, step_);
}

/// Factors are means over the passes of a step, if each loss was divided by their number. A program
/// that accumulates without saying so gets factors of another scale. It is warned once, but not if
/// the options show that the scale is right.
void Preconditioner::warn_of_passes(int passes) {
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
      options_.accumulate ? fmt::format("factors are right if each loss is divided by {}", expected)
                          : fmt::format("if each loss is divided by {0}, give accumulate={0}, as "
                                        "an option or in the strategy's kfac(...). Without the "
                                        "division the factors are those of the mean of the losses",
                                        passes)));
}

double Preconditioner::rate() const {
  return options_.learning_rate ? options_.learning_rate(step_) : rate_of(*optimizer_);
}

/// The KL clip bounds one step's direction by the rate of that step. A momentum of earlier
/// directions is multiplied by the rate of now. If the rate rises, the bound would not hold for it.
/// So momentum is scaled down, or the program is warned if the optimizer is not known.
void Preconditioner::bound_update() {
  if (!(optimizer_ || options_.learning_rate)) return;
  const double now = rate(), before = std::exchange(last_rate_, now);
  if (options_.kl_clip->at(step_) <= 0) return;
  if (optimizer_) return bound_momentum(*optimizer_, blocks_, before, now);
  if (!(before > 0 && now > before) || std::exchange(warned_unbound_, true)) return;
  log::warning(fmt::format(
      "K-FAC: step {}: the learning rate has risen from {:g} to {:g}. Momentum carries earlier "
      "directions along, and the clip does not hold for these unless K-FAC knows the optimizer",
      step_, before, now));
}

}  // namespace linerate::torch_adapter
