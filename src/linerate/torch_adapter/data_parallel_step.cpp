// A step of a DataParallel: gradients as they come, and the rounds in which they are exchanged.
//
// Within backward, on_gradient() counts each gradient. When a parameter has as many as in earlier
// steps, its gradient is complete and is reported to the runner. The runner sends a bucket once all
// its gradients were reported. At the end of the step, end() does the rest on the program's thread.
// - It looks for gradients that no hook has told of, and for changes of the model.
// - It runs a round (run_rounds). A round reports what is left, waits until the step's flags have
//   come back, and reads the verdict that all ranks share.
// - It gives the means to .grad, to K-FAC, or to updates that happen under the next forward pass
//   (DeAR).
//
// An example with three ranks. Rank 1 runs one more backward pass than the step before, so it adds
// to a gradient that it has sent. At the end of the step rank 1 sets the flag `again`; ranks 0 and
// 2 set none. All ranks see rank 1's flag when the flags come back. So no rank counts this round,
// and all three send everything a second time.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/weight_table.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/data_parallel_impl.hpp"
#include "linerate/torch_adapter/state_check.hpp"

namespace linerate::torch_adapter {

using doc::StepFlag;

// Within a step

/// Runs in autograd's hook. A gradient leaves at once if four things hold. The pass is outside of
/// accumulate(), the gradient is the parameter's last, it was not sent yet, and this object may
/// send.
void DataParallel::Impl::on_gradient(std::size_t parameter) {
  const std::lock_guard lock(mutex);
  const c10::NoGradGuard no_grad;
  if (updates.pending()) settle();  // the forward pass ended without using these parameters
  if (!trained_of[parameter] || !failed.empty()) return;  // thawed since: finish() notices
  const std::size_t p = *trained_of[parameter];
  ParameterStep& mine = x().count()[p];
  take_scale();
  mine.used = gradients_came = true;
  if (accumulating > 0) return;
  require_finished(p, mine);
  mine.ready = x().runner().moment();
  if (measured.first_gradient < 0) measured.first_gradient = mine.ready;
  ++mine.gradients;
  if (!x().count().is_complete(p) || mine.reported || !may_send()) return;
  x().report(p);
}

void DataParallel::Impl::take_scale() {
  std::optional<double> scale = loss_scale;
  if (options.scale_of_pass) {
    scale = options.scale_of_pass();
    if (!scale) return;  // finish() may know
  }
  if (scale_is_taken && scale != loss_scale) return refuse_two_scales(scale);
  loss_scale = scale;
  scale_is_taken = true;
  x().set_loss_scale(scale);
}

/// Forgets the scale under which gradients came, if all of them have been cleared since. Copies
/// that were sent are sent again in finish().
void DataParallel::Impl::forget_cleared_scale() {
  if (!scale_is_taken) return;
  for (const Parameter& p : x().state().trained)
    if (p.tensor.grad().defined() && p.tensor.grad().any().item<bool>()) return;
  scale_is_taken = false;
}

void DataParallel::Impl::refuse_two_scales(std::optional<double> other) {
  const auto text = [](std::optional<double> scale) {
    return scale ? fmt::format("{}", *scale) : std::string("none");
  };
  refuse(
      fmt::format("expected gradients of one loss scale, found them added up under {} and {}. "
                  "Change the scale (scaler.update(), set_loss_scale()) only between a step's "
                  "end and the next backward pass, or clear the gradients first",
                  text(loss_scale), text(other)));
}

/// A preconditioner has seen a layer's inputs (side A) or the gradients of its outputs (side G).
/// Inputs may leave under the forward pass, when the layer was used as often as in earlier steps.
/// Gradients of outputs leave with the layer's own gradients (report_curvature_of).
void DataParallel::Impl::on_use(std::size_t block, doc::FactorSide side, const Span& took) {
  const std::lock_guard lock(mutex);
  const c10::NoGradGuard no_grad;
  const auto b = static_cast<std::int32_t>(block);
  const auto factor = to_index(doc::factor_index(b, side));
  measured.factors.push_back({static_cast<std::int32_t>(factor), took.start_ns, took.end_ns});
  if (!failed.empty() || accumulating > 0) return;
  ParameterStep& use = x().uses()[factor];
  ++use.gradients;
  if (use.reported) return x().tensors().send_again();
  if (side == doc::FactorSide::g || !x().uses().is_complete(factor) || !may_send()) return;
  x().report_inputs(b);
}

void DataParallel::Impl::require_finished(std::size_t p, ParameterStep& mine) {
  constexpr int kSampled = 8;
  const Parameter& parameter = x().state().trained[p];
  if (!parameter.tensor.is_cpu()) return;  // to look at it would wait for the device
  if (mine.gradients == 0) {
    if (sampled++ < kSampled) mine.weights = weight_sample(parameter.tensor);
  } else if (mine.weights && *mine.weights != weight_sample(parameter.tensor)) {
    const UsageError error(fmt::format(
        "{}: finish() was not called after the backward pass of step {}: parameter \"{}\" has "
        "changed since its gradient came, and the gradient was not exchanged; call finish() "
        "between backward() and the optimizer's step, or run backward inside no_sync()",
        who, step, parameter.name));
    x().tensors().refuse(std::make_exception_ptr(error));
    throw error;
  }
}

/// The first gradient of a step asks for the turn among the objects that share the communicator.
/// Whoever gets it sends under backward. The others send in finish().
bool DataParallel::Impl::may_send() {
  if (x().runner().in_step()) return !deferred;
  if (deferred) return false;
  deferred = captures() || !early.take();
  if (!deferred) x().begin(Sending::scheduled, samples, label());
  return !deferred;
}

void DataParallel::Impl::begin() {
  deferred = deferred || !early.take();
  if (deferred) early.wait_for_others();
  x().begin(deferred ? Sending::after_backward : Sending::scheduled, samples, label());
}

// The end of a step

void DataParallel::Impl::expect(const torch::optim::Optimizer& optimizer) {
  for (const std::string& doubt : expect(described(optimizer)))
    if (communicator.rank() == 0) log::warning(doubt);
}

std::vector<std::string> DataParallel::Impl::expect(SteppedOptimizer optimizer) {
  const std::lock_guard lock(mutex);
  const std::string place = fmt::format("{}: step {}", who, step);
  const auto holds_any = [&] {
    return optimizer.holds.empty() ||
           std::ranges::any_of(optimizer.holds,
                               [this](const at::Tensor& held) { return now.holds(held); });
  };
  const bool is_of_model = holds_any() || (look_at_model(), holds_any());
  if (!is_of_model)
    refuse(
        fmt::format("{} holds no parameter of this model, so its step would change nothing; give "
                    "the optimizer of the model's own parameters",
                    optimizer.name));
  const plan::OptimizerFit fit = plan::fit_of(asked, optimizer.steps_by);
  const std::string pair = fmt::format("strategy {} with {}", options.strategy, optimizer.name);
  if (!fit.refused.empty()) refuse(fmt::format("{}: {}", pair, fit.refused));
  std::vector<std::string> doubts;
  if (!fit.doubtful.empty() && !std::exchange(warned_doubtful, true))
    doubts.push_back(fmt::format("{}: {}: {}", place, pair, fit.doubtful));
  if (const std::string names = is_of_model ? not_held(optimizer) : ""; !names.empty())
    doubts.push_back(fmt::format("{}: {}", place, names));
  optimizer.holds.clear();  // not to keep them alive
  stepping = std::move(optimizer);
  return doubts;
}

/// The parameters with gradients that this optimizer does not hold, in words; empty: none. Looked
/// for in an optimizer's first step after a backward pass, and when the optimizer has grown.
std::string DataParallel::Impl::not_held(const SteppedOptimizer& optimizer) {
  constexpr std::size_t kNamed = 3;
  const std::pair looking{optimizer.identity, optimizer.holds.size()};
  if (warned_not_held || optimizer.holds.empty() || looking == looked_at) return {};
  std::set<const at::TensorImpl*> held;
  for (const at::Tensor& one : optimizer.holds) held.insert(one.unsafeGetTensorImpl());
  std::vector<std::string> names;
  std::size_t with_gradient = 0;
  for (const Parameter& p : x().state().trained) {
    if (!p.tensor.grad().defined()) continue;
    ++with_gradient;
    if (!held.contains(p.tensor.unsafeGetTensorImpl())) names.push_back('"' + p.name + '"');
  }
  if (with_gradient > 0) looked_at = looking;
  if (names.empty()) return {};
  warned_not_held = true;
  const std::size_t count = names.size();
  names.resize(std::min(count, kNamed));
  return fmt::format(
      "{} does not hold {} of {} parameters that got gradients ({}{}), and step() would clear "
      "these without an update. With several optimizers call finish(), then step() and zero_grad() "
      "of each. Freeze the parameters that no optimizer trains",
      optimizer.name, count, with_gradient, fmt::join(names, ", "), count > kNamed ? " ..." : "");
}

void DataParallel::Impl::require_own_gradients(const StepReport& report) {
  const bool nothing_came = report.unused_everywhere == static_cast<int>(x().count().size());
  if (!nothing_came || samples || no_backward_is_meant || !stepping || !cleared_by ||
      stepping->identity == cleared_by->identity)
    return;
  x().runner().drain();
  throw on_every_rank(UsageError(
      fmt::format("{}: step {}: no rank has a gradient for {}, because step({}) before it cleared "
                  "the gradients of all parameters. With several optimizers call finish(), then "
                  "step() and zero_grad() of each. If no rank has samples, call set_batch(0)",
                  who, step, stepping->name, cleared_by->name)));
}

StepReport DataParallel::Impl::step_with(torch::optim::Optimizer& optimizer, KFAC* preconditioner) {
  expect(optimizer);
  if (x().gradients_may_follow() && PartialOptimizer::can_take_apart(optimizer)) {
    taken_apart->follow(optimizer);
    return end(Ending::updates, taken_apart);
  }
  StepReport report = end(Ending::gradients);
  const std::int64_t start = moment();
  if (preconditioner) {
    second_order()->set_optimizer(optimizer);
    preconditioner->step();
  }
  optimizer.step();
  if (options.recorder) {
    std::vector<std::string> names;
    for (const Parameter& p : x().state().trained) names.push_back(p.name);
    record_update(*options.recorder, names, start, moment());
  }
  discard_gradients();
  return report;
}

/// Counts gradients that no hook has told of. Other code may have replaced the hook, or the program
/// may have written .grad itself, as with autograd::grad() or from a function's gradient.
void DataParallel::Impl::find_missed_gradients() {
  const bool pushed_out = hooks->renew();
  for (std::size_t p = 0; p < x().count().size(); ++p) {
    const at::Tensor& gradient = x().state().trained[p].tensor.grad();
    if (gradient.defined() && (pushed_out || !left.is_left(p, gradient)))
      x().count()[p].used = true;
  }
}

/// The end of a step. First come reports of the step before and checks that only this rank can
/// make, then the exchange, and then the use of the means. A check that fails sets a flag and does
/// not throw, because the other ranks have to hear of it in the exchange. An exception that every
/// rank gets ends the step alone; any other ends the object's use.
StepReport DataParallel::Impl::end(Ending ending, std::shared_ptr<PartialUpdates> optimizer) {
  const std::lock_guard lock(mutex);
  const c10::NoGradGuard no_grad;
  check_usable();
  require_no_capture();
  settle();
  const std::int64_t start = steady_ns();
  try {
    StepReport report;
    take_held(report);
    take_late_infinite(report);
    find_missed_gradients();
    look_at_model();
    if (now != members)
      if (const std::string problem = problem_of_model(); !problem.empty()) refuse(problem);
    bool skips = ending == Ending::nothing;
    if (skips) x().tensors().skip();
    const bool nothing_came = !x().count().any() && !x().runner().in_step();
    if (nothing_came && !skips && !no_backward_is_meant && !x().tensors().refusal())
      warn_no_backward();
    warn_not_preconditioned();
    if (!x().runner().in_step()) begin();
    if (!x().enqueues()) {  // else the host knows nothing of their times yet
      report.factors = measured.factors;
      for (const FactorSpan& span : report.factors)
        x().runner().record_factor(span.factor, span.start_ns, span.end_ns);
    }
    check_curvature(skips);
    run_rounds(report);
    if (!skips) require_own_gradients(report);
    loaded = false;
    if (report.infinite) ending = Ending::nothing, skips = true;
    if (ending != Ending::updates) x().runner().drain();
    report.exposed_s += Span{start, steady_ns()}.seconds();
    if (ending == Ending::gradients) {
      if (x().tensors().take_means(!second_order())) {
        note_infinite(report);
        ending = Ending::nothing, skips = true;
      }
      if (second_order() && x().curvature()->enqueues())
        second_order()->zero_if(x().tensors().infinite_there());
      if (second_order()) second_order()->take_all();
    }
    if (ending == Ending::nothing) discard_gradients();
    if (ending == Ending::updates) {
      std::vector<ArrivingBucket> buckets = x().arriving();
      if (second_order()) second_order()->end_arriving();
      discard_gradients();
      updates.begin(x().runner(), std::move(optimizer), std::move(buckets));
    }
    // A step that no rank computed teaches nothing.
    if (!skips && report.unused_everywhere < static_cast<int>(x().count().size())) learn();
    awaits_preconditioner = options.preconditioner && !skips && ending != Ending::updates;
    cleared_by = stepping;
    end_step();
    return report;
  } catch (const Error& e) {
    if (e.on_every_rank())
      end_step();
    else
      failed = e.what();
    throw;
  } catch (const std::exception& e) {
    failed = e.what();
    throw;
  }
}

/// Refuses the step on all ranks.
void DataParallel::Impl::refuse(const std::string& why) {
  x().tensors().refuse(
      std::make_exception_ptr(UsageError(fmt::format("{}: step {}: {}", who, step, why))));
}

void DataParallel::Impl::take_held(StepReport& report) {
  std::tie(report.held, measured.held) = updates.take_held();
  for (const HeldSpan& span : report.held)
    report.exposed_s += Span{span.start_ns, span.update_ns}.seconds();
}

/// Refuses the step on all ranks if this rank cannot go on. Either layers were used in ways for
/// which K-FAC has no factors, or inverses of an earlier step have failed too often.
void DataParallel::Impl::check_curvature(bool skips) {
  if (!second_order()) return;
  if (const std::exception_ptr failure = second_order()->take_failure())
    x().tensors().refuse(failure);
  if (skips || !x().count().any()) return;
  try {
    second_order()->check();
  } catch (const std::exception&) {
    x().tensors().refuse(std::current_exception());
  }
}

/// Gives the planner the step's times. If the planner has a new plan, the updates that still wait
/// belong to the old plan and are made first.
void DataParallel::Impl::learn() {
  measured.end = x().runner().moment();
  if (!x().learn(std::move(measured))) return;
  settle();  // by the plan that sent them
  x().take_plan();
  if (x().planner().settled() && x().planner().gave_up() && communicator.rank() == 0)
    log::warning(fmt::format("{}: step {}: {} (most_above_ddp: infinity keeps {})", who, step,
                             x().planner().trial_in_words(), options.strategy));
}

/// A step takes one round as a rule. It takes another if the model has changed (all ranks plan anew
/// and repeat), and another if gradients changed after they were sent. A refused, skipped or
/// infinite step ends without a further round.
void DataParallel::Impl::run_rounds(StepReport& report) {
  constexpr int kMost = 3;  // a changed model, and gradients that changed
  for (int round = 1;; ++round) {
    LINERATE_CHECK(round <= kMost, who + ": a step that does not come to an end");
    if (watch->changed() || now != members) x().tensors().note_change();
    x().run_to_end();
    const StepTensors& tensors = x().tensors();
    report.variant = x().runner().graph().name;
    report.copy_s += tensors.copy_s();
    report.unused_here = tensors.unused_here();
    report.unused_everywhere = tensors.unused_everywhere();
    report.bytes += x().gradient_bytes();
    report.host_waits += x().host_waits();
    ++report.rounds;
    if (tensors.accepted()) return;
    x().runner().drain();
    if (tensors.said(StepFlag::refused)) {  // every rank has seen the flag
      comm::require_success(communicator, who, [&] {
        if (tensors.refusal()) std::rethrow_exception(tensors.refusal());
      });
      throw InternalError(who + ": a step was refused by nobody");
    }
    if (tensors.said(StepFlag::skipped)) return require_all_skip();
    if (tensors.said(StepFlag::infinite)) return note_infinite(report);
    bool again = false;
    if (tensors.said(StepFlag::changed))
      follow_change();
    else
      warn_again(), again = true;
    x().begin(again ? Sending::after_backward : Sending::scheduled, samples, label());
  }
}

void DataParallel::Impl::note_infinite(StepReport& report) {
  report.infinite = true;
  if (second_order()) second_order()->skip();
  if (communicator.rank() == 0)
    log::warning(
        fmt::format("{}: step {}: a gradient holds an infinity, a NaN or a magnitude above 2^64, "
                    "and the strategy compresses, so the step is skipped on all ranks",
                    who, step));
}

/// Reports what the device found in an earlier step. Nobody waited for it then.
void DataParallel::Impl::take_late_infinite(StepReport& report) {
  report.late_infinite = x().tensors().take_late_infinite();
  if (report.late_infinite && communicator.rank() == 0)
    log::warning(
        fmt::format("{}: a gradient before step {} held an infinity or a NaN, so all gradients of "
                    "its step were taken for zero on all ranks",
                    who, step));
}

void DataParallel::Impl::require_all_skip() {
  if (!x().tensors().said(StepFlag::finished)) return;
  const std::vector<std::string> acts = comm::gather_texts(
      communicator, x().tensors().skips() ? "skip_step()" : "finish()", who + ": ends of a step");
  std::string list;
  for (std::size_t r = 0; r < acts.size(); ++r)
    list += fmt::format("{}rank {}: {}", r == 0 ? "" : ", ", r, acts[r]);
  throw on_every_rank(UsageError(
      fmt::format("{}: ranks end step {} differently ({}), so its gradients are not exchanged. "
                  "Either all ranks skip a step or none does; let the ranks agree first",
                  who, step, list)));
}

/// Some rank's model has other tensors than before. All ranks compare their models, require equal
/// weights, and make a new exchange if members or layouts have changed. If only memory has moved,
/// the old exchange stays.
void DataParallel::Impl::follow_change() {
  const std::vector<std::string> changes = comm::gather_texts(communicator,
                                                              now != members      ? "members"
                                                              : watch->reshaped() ? "layouts"
                                                                                  : "",
                                                              who + ": changes of the model");
  const bool replaced = std::ranges::find(changes, "members") != changes.end();
  const std::string before = fmt::format("before step {}", step);
  ModelState state = agreed_model(
      now.parameters, now.buffers, "", communicator, options,
      replaced
          ? fmt::format("{}: layers, changed {} (make the same change on every rank)", who, before)
          : who);
  require_same_tensors(
      communicator,
      replaced ? fmt::format("{}: layers, replaced or added {} (they have to begin alike: seed the "
                             "ranks alike before a layer is made, or wrap the model again, which "
                             "copies rank 0's layers to every rank)",
                             who, before)
               : fmt::format("{}: weights, loaded or moved {}", who, before),
      now.parameters);
  if (replaced || std::ranges::find(changes, "layouts") != changes.end()) {
    make_exchange(std::move(state));
    if (replaced) take_members();
    // A gradient in .grad came since the last step, even if no hook ran.
    for (std::size_t p = 0; p < x().count().size(); ++p)
      x().count()[p].used = x().state().trained[p].tensor.grad().defined();
  }
  watch->accept();
}

std::int64_t DataParallel::Impl::moment() const {
  return options.recorder ? options.recorder->now() : 0;
}

void DataParallel::Impl::discard_gradients() {
  for (const Parameter& p : x().state().trained) p.tensor.mutable_grad().reset();
}

void DataParallel::Impl::end_step() {
  x().tensors().end_step();
  x().count().discard();
  x().uses().discard();
  left.note(x().state().trained);
  if (second_order()) second_order()->discard_batch();
  early.give_back();
  deferred = false;
  no_backward_is_meant = false;
  samples.reset();
  stepping.reset();
  scale_is_taken = false;
  gradients_came = false;
  measured = {};
  measured.begin = x().runner().moment();
  sampled = 0;
  ++step;
}

void DataParallel::Impl::warn_no_backward() {
  if (std::exchange(warned_no_backward, true)) return;
  log::warning(
      fmt::format("{}: rank {} finishes step {} without a backward pass, so its gradients count as "
                  "zero. If the rank has no samples, call set_batch(0)",
                  who, communicator.rank(), step));
}

void DataParallel::Impl::warn_not_preconditioned() {
  if (!std::exchange(awaits_preconditioner, false) ||
      std::exchange(warned_not_preconditioned, true))
    return;
  log::warning(
      fmt::format("{}: rank {}: step {} was finished without the preconditioner's step(), so its "
                  "gradients were not preconditioned; call it between finish() and the "
                  "optimizer's step, or let one step() do all of it",
                  who, communicator.rank(), step - 1));
}

void DataParallel::Impl::warn_again() {
  const std::string* name = x().tensors().changed_after_sending();
  if (!name || std::exchange(warned_again, true)) return;
  log::warning(
      fmt::format("{}: rank {}: the gradient of \"{}\" changed in step {} after it was sent, so "
                  "the step is exchanged a second time. Run all but the last backward pass of a "
                  "step inside no_sync(), and change gradients after finish()",
                  who, communicator.rank(), *name, step));
}

}  // namespace linerate::torch_adapter
