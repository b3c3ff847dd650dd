#include "linerate/torch_adapter/data_parallel.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <mutex>
#include <optional>
#include <utility>

#include "linerate/comm/agreement.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/delayed_updates.hpp"
#include "linerate/torch_adapter/early_sending.hpp"
#include "linerate/torch_adapter/gradient_hooks.hpp"
#include "linerate/torch_adapter/model_watch.hpp"
#include "linerate/torch_adapter/parameter_exchange.hpp"
#include "linerate/torch_adapter/state_broadcast.hpp"
#include "linerate/torch_adapter/state_check.hpp"
#include "linerate/torch_adapter/weight_sample.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::StepFlag;

double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(steady_ns() - start_ns) * 1e-9;
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

NamedTensors named(const std::vector<Parameter>& parameters) {
  NamedTensors list;
  for (const Parameter& p : parameters) list.emplace_back(p.name, p.tensor);
  return list;
}

/// Its step, if any of its parameters has a gradient.
void step_what_has_gradients(torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& p : group.params())
      if (p.grad().defined()) return static_cast<void>(optimizer.step());
}

/// Dense tensors only, which agreed_model() made sure of; the tensors keep the memory alive.
MemoryPieces memory_of(const NamedTensors& tensors) {
  MemoryPieces pieces;
  for (const auto& [name, t] : tensors)
    pieces.emplace_back(static_cast<std::byte*>(t.data_ptr()), t.nbytes());
  return pieces;
}

}  // namespace

struct DataParallel::Impl {
  Impl(const NamedTensors& all_parameters, const NamedTensors& all_buffers,
       const std::string& problem, comm::Communicator& c, const DataParallelOptions& o)
      : communicator(c),
        options(o),
        who(who_is(o)),
        parameters(all_parameters),
        buffers(all_buffers),
        early(c, [this] { exchange->runner().wait_idle(); }),
        updates(o.recorder) {
    make_exchange(agreed_model(parameters, buffers, problem, c, o));
    {
      const c10::NoGradGuard no_grad;
      const ModelState& state = exchange->state();
      broadcast_memory(c, memory_of(named(state.trained)), who + ": initial parameters");
      broadcast_memory(c, memory_of(state.frozen), who + ": initial frozen parameters");
      broadcast_memory(c, memory_of(state.buffers), who + ": initial buffers");
    }
    watch.emplace(parameters, buffers);
    hooks = std::make_unique<GradientHooks>(tensors_of(parameters),
                                            [this](std::size_t p) { on_gradient(p); });
  }

  comm::Communicator& communicator;
  const DataParallelOptions options;
  const std::string who;
  const NamedTensors parameters, buffers;  // as the model names them
  std::unique_ptr<ParameterExchange> exchange;
  std::vector<std::optional<std::size_t>> trained_of;  // by parameter: its place in the exchange
  std::optional<ModelWatch> watch;
  std::mutex mutex;  // hooks may fire on several threads
  std::int64_t step = 0;
  int accumulating = 0;
  bool deferred = false;  // somebody else's turn: nothing is sent before finish()
  std::optional<std::int64_t> samples;
  std::int64_t first_gradient_ns = -1;
  int sampled = 0;     // parameters, in this step
  std::string failed;  // why no further step can run
  bool warned_no_backward = false, warned_again = false;
  EarlySending early;
  DelayedUpdates updates;                // of the step before
  std::unique_ptr<GradientHooks> hooks;  // last: gone before anything that a hook uses

  ParameterExchange& x() { return *exchange; }
  std::string label() const {
    return options.name.empty() ? fmt::format("step {}", step)
                                : fmt::format("{} step {}", options.name, step);
  }

  void make_exchange(ModelState state) {
    exec::CompressionState remembered;
    if (exchange) remembered = exchange->compression().save();
    exchange = std::make_unique<ParameterExchange>(std::move(state), communicator, options, who);
    exchange->compression().load(std::move(remembered));
    trained_of.assign(parameters.size(), std::nullopt);
    const std::vector<Parameter>& trained = exchange->state().trained;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      for (std::size_t t = 0; t < trained.size(); ++t)
        if (trained[t].name == parameters[i].first) trained_of[i] = t;
  }

  void check_usable() const {
    if (!failed.empty())
      throw CommError(
          fmt::format("{}: an earlier step failed ({}); no further step can run", who, failed));
  }

  /// Before anything that a pending update would come too late for.
  void settle() {
    try {
      updates.settle();
    } catch (const std::exception& e) {
      failed = e.what();
      throw;
    }
  }

  // Within a step

  void on_gradient(std::size_t parameter) {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    if (updates.pending()) settle();  // no operator of the forward pass read what is left
    if (!trained_of[parameter] || !failed.empty()) return;  // thawed: finish() notices
    const std::size_t p = *trained_of[parameter];
    ParameterStep& mine = x().count()[p];
    mine.used = true;
    if (accumulating > 0) return;
    require_finished(p, mine);
    if (first_gradient_ns < 0) first_gradient_ns = steady_ns();
    ++mine.gradients;
    mine.ready_s = seconds_since(first_gradient_ns);
    if (!x().count().is_complete(p) || mine.reported || !may_send()) return;
    x().report(p);
  }

  /// Throws where an optimizer has changed a weight between two gradients of one step. The first
  /// few parameters that get a gradient tell.
  void require_finished(std::size_t p, ParameterStep& mine) {
    constexpr int kSampled = 8;
    const Parameter& parameter = x().state().trained[p];
    if (mine.gradients == 0) {
      if (sampled++ < kSampled) mine.weights = weight_sample(parameter.tensor);
    } else if (mine.weights && *mine.weights != weight_sample(parameter.tensor)) {
      const UsageError error(fmt::format(
          "{}: finish() was not called after the backward pass of step {}: parameter \"{}\" has "
          "changed since its gradient came, and the gradient was not exchanged; call finish() "
          "between backward() and the optimizer's step, or run backward inside accumulate()",
          who, step, parameter.name));
      x().tensors().refuse(std::make_exception_ptr(error));
      throw error;
    }
  }

  /// Whether gradients may leave as they come; begins the step where they may.
  bool may_send() {
    if (x().runner().in_step()) return !deferred;
    if (deferred) return false;
    deferred = !early.take();
    if (!deferred) x().begin(Sending::scheduled, samples, label());
    return !deferred;
  }

  void set_batch(std::int64_t count) {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    check_usable();
    settle();
    if (count < 0)
      throw UsageError(
          fmt::format("{}: set_batch: expected at least 0 samples, found {}", who, count));
    if (samples || x().runner().in_step() || x().count().any_to_exchange())
      throw UsageError(
          fmt::format("{}: set_batch: the backward pass of step {} has begun, or its batch was set "
                      "before; call it once, before backward",
                      who, step));
    samples = count;
    begin();
  }

  /// Begins the step where nobody has: after_backward where it is another object's turn.
  void begin() {
    deferred = deferred || !early.take();
    if (deferred) early.wait_for_others();
    x().begin(deferred ? Sending::after_backward : Sending::scheduled, samples, label());
  }

  // The end of a step

  enum class Ending {
    gradients,  // every .grad is the mean
    updates,    // the optimizer's turn, when they arrive
    nothing     // they are thrown away
  };

  /// An exchange of what stands in .grad on every rank.
  StepReport end(Ending ending, torch::optim::Optimizer* optimizer = nullptr) {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    check_usable();
    settle();
    const std::int64_t start = steady_ns();
    try {
      StepReport report;
      take_held(report);
      bool skips = ending == Ending::nothing;
      if (skips) x().tensors().skip();
      const bool nothing_came = !x().count().any() && !x().runner().in_step();
      if (nothing_came && !skips && !x().tensors().refusal()) warn_no_backward();
      if (!x().runner().in_step()) begin();
      run_rounds(report);
      if (report.infinite) ending = Ending::nothing, skips = true;
      if (ending != Ending::updates) x().runner().drain();
      report.exposed_s += seconds_since(start);
      if (ending == Ending::gradients) x().tensors().take_means();
      if (ending == Ending::nothing) discard_gradients();
      if (ending == Ending::updates) update_as_they_arrive(*optimizer);
      // From a step that nobody computed there is nothing to learn.
      if (!skips && report.unused_everywhere < static_cast<int>(x().count().size())) learn();
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

  void take_held(StepReport& report) {
    report.held = updates.take_held();
    for (const HeldSpan& span : report.held)
      report.exposed_s += static_cast<double>(span.update_ns - span.start_ns) * 1e-9;
  }

  /// What the optimizer holds beside these parameters is updated at once, as by its step().
  void update_as_they_arrive(torch::optim::Optimizer& optimizer) {
    std::vector<ArrivingBucket> buckets = x().arriving();
    discard_gradients();
    step_what_has_gradients(optimizer);
    updates.begin(x().runner(), optimizer, std::move(buckets));
  }

  void learn() {
    if (!x().learn()) return;
    settle();  // by the plan that sent them
    x().take_plan();
  }

  /// Once; again, all of it behind backward, where what was sent does not stand any more.
  void run_rounds(StepReport& report) {
    constexpr int kMost = 3;  // a changed model, and gradients that changed
    for (int round = 1;; ++round) {
      LINERATE_CHECK(round <= kMost, who + ": a step that does not come to an end");
      if (watch->changed()) x().tensors().note_change();
      x().run_to_end();
      const StepTensors& tensors = x().tensors();
      add_round(report);
      if (tensors.accepted()) return;
      x().runner().drain();
      if (tensors.said(StepFlag::refused)) throw_refusal();
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

  void note_infinite(StepReport& report) const {
    report.infinite = true;
    if (communicator.rank() == 0)
      log::warning(fmt::format(
          "{}: step {}: a gradient that was to be compressed holds an infinity or a NaN; "
          "the step is skipped on all ranks",
          who, step));
  }

  void add_round(StepReport& report) {
    const StepTensors& tensors = x().tensors();
    report.variant = x().runner().graph().name;
    report.copy_s += tensors.copy_s();
    report.unused_here = tensors.unused_here();
    report.unused_everywhere = tensors.unused_everywhere();
    report.bytes += x().gradient_bytes();
    ++report.rounds;
  }

  /// Collective: every rank has seen the flag.
  void throw_refusal() {
    comm::require_success(communicator, who, [this] {
      if (x().tensors().refusal()) std::rethrow_exception(x().tensors().refusal());
    });
    throw InternalError(who + ": a step was refused by nobody");
  }

  void require_all_skip() {
    if (!x().tensors().said(StepFlag::finished)) return;
    const std::vector<std::string> acts = comm::gather_texts(
        communicator, x().tensors().skips() ? "skip_step()" : "finish()", who + ": ends of a step");
    std::string list;
    for (std::size_t r = 0; r < acts.size(); ++r)
      list += fmt::format("{}rank {}: {}", r == 0 ? "" : ", ", r, acts[r]);
    throw on_every_rank(UsageError(
        fmt::format("{}: ranks end step {} differently ({}); its gradients are not exchanged. All "
                    "ranks skip a step or none: agree on it first",
                    who, step, list)));
  }

  /// Parameters or buffers have other memory, types or shapes on some rank. Collective.
  void follow_change() {
    ModelState state = agreed_model(parameters, buffers, "", communicator, options);
    require_same_tensors(communicator,
                         fmt::format("{}: weights, loaded or moved before step {}", who, step),
                         parameters);
    bool reshaped = watch->reshaped();
    for (const std::string& one :
         comm::gather_texts(communicator, reshaped ? "yes" : "", who + ": changed layouts"))
      reshaped = reshaped || !one.empty();
    if (reshaped) {
      make_exchange(std::move(state));
      // Whatever is in .grad came since the step before, also where nobody was told of it.
      for (std::size_t p = 0; p < x().count().size(); ++p)
        x().count()[p].used = x().state().trained[p].tensor.grad().defined();
    }
    watch->accept();
  }

  void record_update(std::int64_t start_ns) {
    if (!options.recorder) return;
    std::vector<std::string> names;
    for (const Parameter& p : x().state().trained) names.push_back(p.name);
    options.recorder->add({.kind = doc::TaskKind::update,
                           .resource = doc::Resource::compute,
                           .set = options.recorder->set_id(names),
                           .start_ns = start_ns,
                           .end_ns = steady_ns()});
  }

  void discard_gradients() {
    for (const Parameter& p : x().state().trained) p.tensor.mutable_grad().reset();
  }

  /// The next step starts from nothing, whether this one counted or not.
  void end_step() {
    x().tensors().end_step();
    x().count().discard();
    early.give_back();
    deferred = false;
    samples.reset();
    first_gradient_ns = -1;
    sampled = 0;
    ++step;
  }

  void warn_no_backward() {
    if (std::exchange(warned_no_backward, true)) return;
    log::warning(
        fmt::format("{}: rank {} finishes step {} without a backward pass: its gradients count as "
                    "zero. set_batch(0) on a rank without samples says that this is meant",
                    who, communicator.rank(), step));
  }

  void warn_again() {
    const std::string* name = x().tensors().changed_after_sending();
    if (!name || std::exchange(warned_again, true)) return;
    log::warning(fmt::format(
        "{}: rank {}: the gradient of \"{}\" changed in step {} after it had been sent, "
        "so the step is exchanged a second time; run all but the last backward pass of "
        "a step inside accumulate(), and change gradients after finish()",
        who, communicator.rank(), *name, step));
  }

  void require_same_weights(const std::string& what) {
    check_usable();
    settle();
    NamedTensors all = parameters;
    if (options.buffers == BufferPolicy::broadcast)
      all.insert(all.end(), buffers.begin(), buffers.end());
    require_same_tensors(communicator, fmt::format("{}: {}", who, what), all);
  }
};

DataParallel::DataParallel(torch::nn::Module& model, comm::Communicator& communicator,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(named_parameters(model), named_buffers(model),
                                   sparse_module(model), communicator, options)) {}

DataParallel::DataParallel(const NamedTensors& parameters, const NamedTensors& buffers,
                           comm::Communicator& communicator, DataParallelOptions options)
    : impl_(std::make_unique<Impl>(parameters, buffers, "", communicator, options)) {}

/// Collectives under way hold the memory that they write to.
DataParallel::~DataParallel() {
  if (!impl_->failed.empty()) return;
  if (impl_->updates.pending() && std::uncaught_exceptions() == 0) {
    log::warning(fmt::format(
        "{}: destroyed while weights wait for their update of step {}; it is done now. Call "
        "settle() where training ends: whoever read them past ATen saw old values",
        impl_->who, impl_->step - 1));
    try {
      impl_->updates.settle();
    } catch (const std::exception& e) {
      log::warning(fmt::format("{}: an update is lost: {}", impl_->who, e.what()));
    }
  }
  if (impl_->x().runner().in_step() || impl_->x().count().any_to_exchange())
    log::warning(
        fmt::format("{}: destroyed before finish(): the gradients of step {} were not exchanged",
                    impl_->who, impl_->step));
}

DataParallel::NoSync::NoSync(DataParallel& owner) : owner_(owner) { ++owner_.impl_->accumulating; }
DataParallel::NoSync::~NoSync() { --owner_.impl_->accumulating; }

void DataParallel::set_batch(std::int64_t samples) { impl_->set_batch(samples); }
StepReport DataParallel::finish() { return impl_->end(Impl::Ending::gradients); }
void DataParallel::skip_step() { impl_->end(Impl::Ending::nothing); }
std::vector<std::string> DataParallel::compression_state() {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_usable();
  impl_->settle();
  if (exec::Compression::operations_of(*impl_->x().planner().plan()).empty()) return {};
  return comm::gather_texts(impl_->communicator, exec::to_bytes(impl_->x().compression().save()),
                            impl_->who + ": state of the compressors");
}
void DataParallel::load_compression_state(std::span<const std::string> parts,
                                          const std::string& place) {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_usable();
  impl_->settle();
  std::vector<exec::CompressionState> states;
  for (const std::string& part : parts) states.push_back(exec::compression_state_from(part, place));
  const comm::Communicator& c = impl_->communicator;
  impl_->x().compression().load(exec::state_for(c.rank(), c.size(), states));
}
void DataParallel::settle() {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_usable();
  impl_->settle();
}

StepReport DataParallel::step(torch::optim::Optimizer& optimizer) {
  if (impl_->x().gradients_may_follow() && PartialOptimizer::can_take_apart(optimizer))
    return impl_->end(Impl::Ending::updates, &optimizer);
  StepReport report = finish();
  const std::int64_t start_ns = steady_ns();
  optimizer.step();
  impl_->record_update(start_ns);
  impl_->discard_gradients();
  return report;
}

StepReport DataParallel::step(torch::optim::Optimizer& optimizer,
                              const std::function<at::Tensor()>& closure) {
  StepReport report;
  settle();
  optimizer.step([&] {
    at::Tensor loss = closure();
    report = finish();
    return loss;
  });
  impl_->discard_gradients();
  return report;
}

void DataParallel::refuse_step(const std::string& reason) {
  const std::lock_guard lock(impl_->mutex);
  impl_->x().tensors().refuse(std::make_exception_ptr(
      InputError(fmt::format("{}: step {}", impl_->who, impl_->step), reason)));
}
void DataParallel::require_same_weights(const std::string& what) {
  impl_->require_same_weights(what);
}
const doc::Plan& DataParallel::plan() const { return *impl_->x().planner().plan(); }
doc::Workload DataParallel::workload() const { return impl_->x().planner().workload(); }
bool DataParallel::plan_is_final() const { return impl_->x().planner().settled(); }

}  // namespace linerate::torch_adapter
