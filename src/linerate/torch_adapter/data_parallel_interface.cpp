// Construction and interface of DataParallel. The constructor makes the ranks agree on the model
// (agreed_model), makes the exchange with its first plan, and gives all ranks rank 0's values. Then
// it puts hooks into the parameters. The other functions check their arguments, take the lock, and
// call the step (data_parallel_step.cpp).
#include "linerate/torch_adapter/data_parallel.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/data_parallel_impl.hpp"
#include "linerate/torch_adapter/state_check.hpp"
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

namespace linerate::torch_adapter {
namespace {

NamedTensors named(const std::vector<Parameter>& parameters) {
  NamedTensors list;
  for (const Parameter& p : parameters) list.emplace_back(p.name, p.tensor);
  return list;
}

/// Forgets residuals of parameters that are gone. A tensor that has taken such a parameter's place
/// and name does not get them.
void forget_replaced(const std::vector<Parameter>& before, const std::vector<Parameter>& now,
                     compress::CompressionState& remembered) {
  for (const Parameter& a : before)
    if (std::ranges::none_of(now, [&a](const Parameter& b) {
          return a.name == b.name && a.tensor.is_same(b.tensor) && a.sizes == b.sizes;
        }))
      remembered.tensors.erase(a.name);
}

/// Overwrites the tensors with rank 0's values, on every rank. They are dense, which agreed_model()
/// made sure of. They travel by way of the CPU, wherever they lie.
void broadcast_values(comm::Communicator& communicator, const NamedTensors& tensors,
                      const std::string& what) {
  std::vector<at::Tensor> here;
  for (const auto& [name, t] : tensors) here.push_back(t.cpu());  // itself, if it is there
  std::vector<comm::WorkPtr> works;
  for (const at::Tensor& t : here) {
    const std::span bytes(static_cast<std::byte*>(t.data_ptr()), t.nbytes());
    works.push_back(communicator.broadcast(comm::buffer(bytes), 0, what));
  }
  for (const comm::WorkPtr& work : works) work->wait();
  for (std::size_t i = 0; i < here.size(); ++i)
    if (!tensors[i].second.is_cpu()) tensors[i].second.copy_(here[i]);
}

constexpr const char* kUnnamed = "DataParallel";

/// "Net" of "(anonymous namespace)::Net", "Sequential" of "torch::nn::SequentialImpl", "Net" of
/// "Net::Impl".
std::string short_class(std::string name) {
  name.resize(std::min(name.size(), name.find('<')));
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  if (name.ends_with("::")) name.resize(name.size() - 2);
  if (const auto colon = name.rfind(':'); colon != std::string::npos) name.erase(0, colon + 1);
  return name;
}

}  // namespace

DataParallel::Impl::Impl(ModelMembers all, torch::nn::Module* module, comm::Communicator& c,
                         const DataParallelOptions& o)
    : communicator(c),
      options(o),
      title(c.unique_name(o.name.empty() ? kUnnamed : fmt::format("DataParallel \"{}\"", o.name))),
      who(title),
      members(std::move(all)),
      now(members),
      model(module),
      early(c, [this] { exchange->runner().wait_idle(); }),
      updates(o.recorder),
      asked(plan::asked_of_optimizer(doc::parse_strategy(o.strategy))) {
  ModelState agreed =
      agreed_model(members.parameters, members.buffers, problem_of_model(), c, o, title);
  const std::string of = comm::broadcast_text(c, module ? short_class(module->name()) : "",
                                              title + ": class of the model");
  if (!of.empty()) who = fmt::format("{} of {}", title, of);
  make_exchange(std::move(agreed));
  {
    const c10::NoGradGuard no_grad;
    const ModelState& state = exchange->state();
    broadcast_values(c, named(state.trained), who + ": initial parameters");
    broadcast_values(c, state.frozen, who + ": initial frozen parameters");
    broadcast_values(c, state.buffers, who + ": initial buffers");
  }
  share_curvature();
  left.note(exchange->state().trained);
  take_members();
}

/// Watches the model's present members from now on: their gradients and their changes.
void DataParallel::Impl::take_members() {
  members = now;
  watch.emplace(members.parameters, members.buffers);
  hooks.reset();
  hooks = std::make_unique<GradientHooks>(tensors_of(members.parameters),
                                          [this](std::size_t p) { on_gradient(p); });
}

void DataParallel::Impl::look_at_model() {
  if (torch::nn::Module* module = model.get()) now = ModelMembers::of(*module);
}

/// Why the model as it is now cannot be exchanged, in words; empty: it can.
std::string DataParallel::Impl::problem_of_model() const {
  torch::nn::Module* module = model.get();
  if (std::string sparse = module ? sparse_module(*module) : ""; !sparse.empty()) return sparse;
  if (!options.preconditioner || now == members) return {};
  for (const auto& block : second_order()->blocks())
    for (const at::Tensor& one : {block->layer().weight, block->layer().bias})
      if (one.defined() && members.holds(one) && !now.holds(one))
        return fmt::format(
            "K-FAC preconditions \"{}\", but that layer was replaced or removed; wrap the model "
            "again, with a preconditioner made of it as it is now",
            block->layer().name);
  return {};
}

DataParallel::Impl::~Impl() {
  if (!options.preconditioner) return;
  second_order()->stop_sharing();
  KfacInside::share(*options.preconditioner, {});
}

/// Watches the preconditioner's passes; its steps become those of the exchange.
void DataParallel::Impl::share_curvature() {
  if (!options.preconditioner) return;
  second_order()->collector().set_listener({[this](std::size_t block, doc::FactorSide side,
                                                   const Span& took) { on_use(block, side, took); },
                                            [this] {
                                              const std::lock_guard lock(mutex);
                                              return x().runner().moment();
                                            }});
  KfacInside::share(*options.preconditioner, [this] {
    const std::lock_guard lock(mutex);
    awaits_preconditioner = false;
    return second_order()->write();
  });
}

CurvatureExchange& DataParallel::Impl::curvature() {
  check_usable();
  if (!x().curvature())
    throw UsageError(who + ": nothing is preconditioned: its state is asked for");
  if (x().runner().in_step())
    throw UsageError(
        fmt::format("{}: the preconditioner's state was asked for in the middle of step {}; save "
                    "and load it after a step and before the next set_batch() or backward pass",
                    who, step));
  settle();  // directions under way need the present inverses
  return *x().curvature();
}

std::string DataParallel::Impl::label() const {
  if (!options.name.empty()) return fmt::format("{} step {}", options.name, step);
  return title == kUnnamed ? fmt::format("step {}", step) : fmt::format("{} step {}", title, step);
}

/// Makes the exchange of a model as it is now, and hands over what the exchange before it kept.
/// These are residuals by name, and K-FAC's averages and inverses. Residuals that were just loaded
/// from a checkpoint all stay, since they are for the model as it is now.
void DataParallel::Impl::make_exchange(ModelState state) {
  compress::CompressionState remembered;
  std::optional<KfacState> curvature;
  if (exchange) remembered = exchange->compression().save();
  if (exchange && !loaded) forget_replaced(exchange->state().trained, state.trained, remembered);
  if (exchange && exchange->curvature()) curvature = exchange->curvature()->save();
  exchange = std::make_unique<ParameterExchange>(std::move(state), communicator, options, who);
  measured = {};  // the moments of the one before are no longer known
  exchange->set_loss_scale(loss_scale);
  exchange->compression().load(std::move(remembered));
  if (curvature) exchange->curvature()->hold(*curvature);
  trained_of.assign(now.parameters.size(), std::nullopt);
  const std::vector<Parameter>& trained = exchange->state().trained;
  for (std::size_t i = 0; i < now.parameters.size(); ++i)
    for (std::size_t t = 0; t < trained.size(); ++t)
      if (trained[t].name == now.parameters[i].first) trained_of[i] = t;
  // Gradients that the strategy cannot compress. A changed model warns again only if these are
  // others than before.
  std::string dense =
      plan::left_dense(doc::parse_strategy(options.strategy), exchange->planner().workload());
  if (dense != warned_left_dense && !dense.empty() && communicator.rank() == 0)
    log::warning(fmt::format("{}: strategy {}", who, dense));
  warned_left_dense = std::move(dense);
}

void DataParallel::Impl::check_usable() const {
  if (!failed.empty())
    throw CommError(
        fmt::format("{}: an earlier step failed ({}), so no further step can run", who, failed));
}

bool DataParallel::Impl::captures() {
  const std::vector<Parameter>& trained = x().state().trained;
  return !trained.empty() && is_capturing(trained.front().tensor.device());
}

void DataParallel::Impl::require_no_capture() {
  if (!captures()) return;
  throw UsageError(
      fmt::format("{}: step {}: expected no graph under capture, found one in the current stream. "
                  "A replay would repeat neither the ranks' messages nor the updates. Capture "
                  "layers alone, and call settle() before",
                  who, step));
}

void DataParallel::Impl::settle() {
  if (!updates.pending()) return;
  require_no_capture();
  try {
    updates.settle();
  } catch (const std::exception& e) {
    failed = e.what();
    throw;
  }
}

/// Whether any rank has a residual. All ranks have the same parameters, so either all ranks come to
/// the gather or none does.
bool DataParallel::Impl::any_rank_owes(const compress::CompressionState& state) {
  if (state.tensors.empty()) return false;
  const std::vector<std::string> all =
      comm::gather_texts(communicator, compress::owes(state, communicator.rank()) ? "yes" : "",
                         who + ": whether anything is owed");
  return std::ranges::any_of(all, [](const std::string& one) { return !one.empty(); });
}

DataParallel::DataParallel(torch::nn::Module& model, comm::Communicator& communicator,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(ModelMembers::of(model), &model, communicator, options)) {}

DataParallel::DataParallel(const NamedTensors& parameters, const NamedTensors& buffers,
                           comm::Communicator& communicator, DataParallelOptions options)
    : impl_(std::make_unique<Impl>(ModelMembers{parameters, buffers}, nullptr, communicator,
                                   options)) {}

/// Collectives in flight hold the memory that they write to, so nothing waits for them here.
DataParallel::~DataParallel() {
  if (!impl_->failed.empty()) return;
  if (impl_->updates.pending() && std::uncaught_exceptions() == 0) {
    log::warning(
        fmt::format("{}: destroyed while weights wait for their update of step {}; it is done now. "
                    "Call settle() where training ends, because a reader that does not "
                    "go through an operator saw the old values",
                    impl_->who, impl_->step - 1));
    try {
      impl_->updates.settle();
    } catch (const std::exception& e) {
      log::warning(fmt::format("{}: an update is lost: {}", impl_->who, e.what()));
    }
  }
  Preconditioner* const pre = impl_->second_order();
  if (const std::exception_ptr failure = pre ? pre->take_failure() : nullptr) try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      log::warning(fmt::format("{}: rank {}: the next step would have ended the run: {}",
                               impl_->who, impl_->communicator.rank(), e.what()));
    }
  if (impl_->x().runner().in_step() || impl_->x().count().any_to_exchange())
    log::warning(
        fmt::format("{}: destroyed before finish(), so the gradients of step {} were not exchanged",
                    impl_->who, impl_->step));
}

DataParallel::NoSync::NoSync(DataParallel& owner) : owner_(owner) { ++owner_.impl_->accumulating; }
DataParallel::NoSync::~NoSync() { --owner_.impl_->accumulating; }

void DataParallel::set_batch(std::int64_t count) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  const c10::NoGradGuard no_grad;
  impl.check_usable();
  impl.require_no_capture();
  impl.settle();
  if (count < 0)
    throw UsageError(
        fmt::format("{}: set_batch: expected at least 0 samples, found {}", impl.who, count));
  if (impl.samples || impl.x().runner().in_step() || impl.x().count().any_to_exchange())
    throw UsageError(
        fmt::format("{}: set_batch: the backward pass of step {} has begun, or its batch was set "
                    "already; call it once, before backward",
                    impl.who, impl.step));
  impl.samples = count;
  impl.begin();
}
void DataParallel::set_loss_scale(std::optional<double> scale) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  const auto is_normal = [](double value) { return std::isnormal(static_cast<float>(value)); };
  if (scale && !(*scale > 0 && is_normal(*scale) && is_normal(1 / *scale)))
    throw UsageError(fmt::format(
        "{}: set_loss_scale: expected a number above 0 that f32 holds with its inverse, found {}",
        impl.who, *scale));
  impl.forget_cleared_scale();
  if (impl.scale_is_taken && scale != impl.loss_scale) return impl.refuse_two_scales(scale);
  impl.loss_scale = scale;
  impl.x().set_loss_scale(scale);
}
bool DataParallel::knows_loss_scale() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->scale_is_taken;
}
void DataParallel::forget_cleared_scale() {
  const std::lock_guard lock(impl_->mutex);
  impl_->forget_cleared_scale();
}
StepReport DataParallel::finish() { return impl_->end(Impl::Ending::gradients); }
void DataParallel::skip_step() { impl_->end(Impl::Ending::nothing); }
std::vector<std::string> DataParallel::compression_state() {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_usable();
  impl_->settle();
  const compress::CompressionState state = impl_->x().compression().save();
  if (exec::Compression::operations_of(*impl_->x().planner().plan()).empty() &&
      !impl_->any_rank_owes(state))
    return {};
  return comm::gather_texts(impl_->communicator, compress::to_bytes(state),
                            impl_->who + ": state of the compressors");
}
void DataParallel::load_compression_state(std::span<const std::string> parts,
                                          const std::string& place) {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_usable();
  impl_->settle();
  std::vector<compress::CompressionState> states;
  for (const std::string& part : parts) {
    states.push_back(compress::compression_state_from(part, place));
    // It is added to every gradient to come, so an infinity in it would stay for ever.
    for (const auto& [name, tensor] : states.back().tensors)
      if (!exec::are_usable(tensor.residual))
        throw InputError(place,
                         fmt::format("the residual of \"{}\": expected numbers of at most 2^64, "
                                     "found an infinity, a NaN or more; resume an earlier "
                                     "checkpoint",
                                     name));
  }
  const comm::Communicator& c = impl_->communicator;
  impl_->x().compression().load(compress::state_for(c.rank(), c.size(), states));
  impl_->loaded = true;
}
KfacState DataParallel::curvature_state() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->curvature().save();
}
void DataParallel::load_curvature_state(const KfacState& state) {
  const std::lock_guard lock(impl_->mutex);
  impl_->curvature().load(state);
}
void DataParallel::settle() {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_usable();
  impl_->settle();
}

void DataParallel::set_tensors(NamedTensors parameters, NamedTensors buffers) {
  const std::lock_guard lock(impl_->mutex);
  impl_->now = {std::move(parameters), std::move(buffers)};
}

std::vector<std::string> DataParallel::expect(const SteppedOptimizer& optimizer) {
  return impl_->expect(optimizer);
}

StepReport DataParallel::step(torch::optim::Optimizer& optimizer) {
  return impl_->step_with(optimizer, nullptr);
}

StepReport DataParallel::step(std::shared_ptr<PartialUpdates> optimizer) {
  LINERATE_CHECK(gradients_may_follow(),
                 "updates in parts of a plan whose gradients do not follow");
  return impl_->end(Impl::Ending::updates, std::move(optimizer));
}
bool DataParallel::gradients_may_follow() const { return impl_->x().gradients_may_follow(); }
bool DataParallel::gradients_came() const { return impl_->gradients_came; }
bool DataParallel::updates_pending() const { return impl_->updates.pending(); }
void DataParallel::renew_hooks() {
  const std::lock_guard lock(impl_->mutex);
  impl_->hooks->renew();
}

StepReport DataParallel::step(KFAC& preconditioner, torch::optim::Optimizer& optimizer) {
  if (&preconditioner != impl_->options.preconditioner)
    throw UsageError(
        impl_->who +
        ": step(preconditioner, optimizer): it is not the preconditioner of the options");
  return impl_->step_with(optimizer, &preconditioner);
}

StepReport DataParallel::step(torch::optim::Optimizer& optimizer,
                              const std::function<at::Tensor()>& closure) {
  StepReport report;
  settle();
  optimizer.step([&] {
    at::Tensor loss = closure();
    impl_->expect(optimizer);
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
  impl_->check_usable();
  impl_->settle();
  impl_->look_at_model();
  NamedTensors all = impl_->now.parameters;
  if (impl_->options.buffers == BufferPolicy::broadcast)
    all.insert(all.end(), impl_->now.buffers.begin(), impl_->now.buffers.end());
  require_same_tensors(impl_->communicator, fmt::format("{}: {}", impl_->who, what), all);
}
const doc::Plan& DataParallel::plan() const { return *impl_->x().planner().plan(); }
doc::Workload DataParallel::workload() const { return impl_->x().planner().workload(); }
void DataParallel::expect_no_backward() { impl_->no_backward_is_meant = true; }
int DataParallel::measured_plans() const { return impl_->x().planner().measured_plans(); }
std::string DataParallel::trial_in_words() const { return impl_->x().planner().trial_in_words(); }
bool DataParallel::plan_is_final() const { return impl_->x().planner().settled(); }

}  // namespace linerate::torch_adapter
