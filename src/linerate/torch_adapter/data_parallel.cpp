#include "linerate/torch_adapter/data_parallel.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/exec/agreement.hpp"
#include "linerate/exec/step_executor.hpp"
#include "linerate/torch_adapter/bucket_memory.hpp"
#include "linerate/torch_adapter/exchange_planner.hpp"
#include "linerate/torch_adapter/gradient_hooks.hpp"
#include "linerate/torch_adapter/parameters.hpp"
#include "linerate/torch_adapter/state_broadcast.hpp"

namespace linerate::torch_adapter {
namespace {

double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(exec::steady_ns() - start_ns) * 1e-9;
}

std::vector<at::Tensor> tensors_of(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const Parameter& p : parameters) tensors.push_back(p.tensor);
  return tensors;
}
std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

/// Dense tensors only, which agreed_state() made sure of; the tensors keep the memory alive.
MemoryPieces memory_of(const std::vector<at::Tensor>& tensors) {
  MemoryPieces pieces;
  for (const at::Tensor& t : tensors)
    pieces.emplace_back(static_cast<std::byte*>(t.data_ptr()), t.nbytes());
  return pieces;
}

std::vector<PlannedParameter> planned(const std::vector<Parameter>& parameters) {
  std::vector<PlannedParameter> list;
  for (const Parameter& p : parameters) list.push_back({p.name, p.tensor.numel(), p.dtype});
  return list;
}

/// Checks what must hold before ranks may exchange anything; throws on every rank or on none.
ModelState agreed_state(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::string& problem, comm::Communicator& communicator,
                        const DataParallelOptions& options) {
  std::string wrong = problem.empty() ? unsupported(parameters, buffers) : problem;
  ModelState state;
  if (wrong.empty()) {
    state = collect(parameters, buffers);
    if (state.trained.empty()) wrong = "no parameter requires a gradient";
  }
  exec::require_no_problem(communicator, "DataParallel", wrong);
  exec::require_same(communicator, "DataParallel: model", describe(parameters, buffers));
  exec::require_same(
      communicator, "DataParallel: options",
      {"strategy " + options.strategy, fmt::format("buffers {}", static_cast<int>(options.buffers)),
       fmt::format("measured steps {}", options.measured_steps),
       options.cluster ? "cluster " + to_json(*options.cluster) : "no cluster"});
  return state;
}

}  // namespace

struct DataParallel::Impl {
  Impl(const NamedTensors& parameters, const NamedTensors& all_buffers, const std::string& problem,
       comm::Communicator& c, const DataParallelOptions& o)
      : communicator(c),
        recorder(o.recorder),
        state(agreed_state(parameters, all_buffers, problem, c, o)),
        planner(c, planned(state.trained), {o.strategy, o.cluster, o.measured_steps}),
        executor(c, memory, o.recorder),
        buffers(o.buffers == BufferPolicy::broadcast ? memory_of(tensors_of(state.buffers))
                                                     : MemoryPieces{}),
        step(state.trained.size()),
        expected(state.trained.size(), 1),
        used(state.trained.size()) {
    const c10::NoGradGuard no_grad;
    broadcast_memory(communicator, memory_of(tensors_of(state.trained)), "initial parameters");
    broadcast_memory(communicator, memory_of(tensors_of(state.frozen)),
                     "initial frozen parameters");
    broadcast_memory(communicator, memory_of(tensors_of(state.buffers)), "initial buffers");
    executor.leave_to_caller(doc::TaskKind::update);  // the user's optimizer
    take_plan();
    hooks = std::make_unique<GradientHooks>(tensors_of(state.trained),
                                            [this](std::size_t p) { on_gradient(p); });
  }

  /// What happened to one parameter since the last finish().
  struct ParameterStep {
    int gradients = 0;      // accumulations in the synchronising part
    bool used = false;      // any accumulation
    bool reported = false;  // its gradient is in its bucket
    double ready_s = -1;    // since the first gradient
    at::Tensor before;      // .grad of a parameter without a gradient here, should nobody have one
  };

  comm::Communicator& communicator;
  exec::Recorder* recorder;
  ModelState state;
  ExchangePlanner planner;
  BucketMemory memory;
  exec::StepExecutor executor;
  PackedBroadcast buffers;
  std::vector<ParameterStep> step;
  std::vector<int> expected;       // gradients a parameter gets in a step: learned in the first one
  std::vector<std::uint8_t> used;  // by any rank, once the step's exchange is done
  std::vector<std::int32_t> position_of;
  std::mutex mutex;  // hooks may fire on several threads
  bool learning = true;
  bool any_gradient = false;
  int accumulating = 0;
  double samples = 0, all_samples = 0;
  comm::WorkPtr samples_work;
  bool weighted = false;
  std::int64_t first_gradient_ns = 0;
  StepReport report;
  std::unique_ptr<GradientHooks> hooks;  // last: gone before anything that a hook uses

  void take_plan() {
    executor.set_plan(planner.plan());
    position_of.assign(state.trained.size(), -1);
    for (std::size_t i = 0; i < planner.order().size(); ++i)
      position_of[static_cast<std::size_t>(planner.order()[i])] = static_cast<std::int32_t>(i);
    memory.forget();
  }

  void begin_exchange() {
    if (executor.in_step()) return;
    executor.begin_step(/*hold=*/learning);
    if (!memory.laid_out_for(executor.graph())) {
      std::vector<at::Tensor> parameter_at;
      for (const std::int32_t p : planner.order())
        parameter_at.push_back(state.trained[static_cast<std::size_t>(p)].tensor);
      memory.lay_out(executor.graph(), parameter_at);
    }
    report = {};
    first_gradient_ns = exec::steady_ns();
  }

  /// Mean over ranks, or over all samples.
  double scale() {
    if (!weighted) return 1.0 / communicator.size();
    if (samples_work) {
      samples_work->wait();
      samples_work.reset();
    }
    return all_samples > 0 ? samples / all_samples : 0.0;
  }

  void on_gradient(std::size_t p) {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    ParameterStep& mine = step[p];
    mine.used = any_gradient = true;
    if (accumulating > 0) return;
    begin_exchange();
    ++mine.gradients;
    mine.ready_s = seconds_since(first_gradient_ns);
    if (mine.reported)
      throw UsageError(fmt::format(
          "parameter \"{}\" got gradient number {} of this step, {} were seen in the first step "
          "and its bucket is already on "
          "its way; run all but the last backward of a step inside DataParallel::accumulate()",
          state.trained[p].name, mine.gradients, expected[p]));
    if (!learning && mine.gradients == expected[p]) hand_over(p);
  }

  /// Puts .grad into its bucket, where it stays: .grad becomes a view of the bucket.
  void hand_over(std::size_t p) {
    const std::int64_t start = exec::steady_ns();
    const std::int32_t position = position_of[p];
    at::Tensor& grad = state.trained[p].tensor.mutable_grad();
    if (grad.defined()) {
      memory.fill(position, grad, scale());
      // Now, not in finish(): autograd's own tensor is freed while it is warm and serves the next
      // layer.
      if (step[p].used && !memory.is_view(position, grad)) grad = memory.view(position);
    } else {
      memory.fill_zeros(position);
    }
    step[p].reported = true;
    report.copy_s += seconds_since(start);
    executor.gradient_ready(position);
  }

  StepReport finish() {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    if (!any_gradient && !weighted) return {};
    refuse_thawed();
    begin_exchange();
    const std::int64_t start = exec::steady_ns();
    hand_over_the_rest();
    executor.launch_rest();
    for (std::size_t p = 0; p < step.size(); ++p) used[p] = step[p].used ? 1 : 0;
    const comm::WorkPtr used_work =
        communicator.all_reduce({used.data(), {static_cast<std::int64_t>(used.size())}, DType::u8},
                                comm::Reduce::max, "used parameters");
    buffers.submit(communicator);
    executor.wait();
    used_work->wait();
    buffers.finish();
    settle_unused();
    report.bytes = memory.wire_bytes();
    report.exposed_s = seconds_since(start);
    end_step();
    return report;
  }

  /// In the order of the plan, so that a bucket leaves as soon as its own gradients are in.
  void hand_over_the_rest() {
    for (const std::int32_t registration : planner.order()) {
      const auto p = static_cast<std::size_t>(registration);
      if (step[p].reported) continue;
      const at::Tensor& grad = state.trained[p].tensor.grad();
      if (!step[p].used && grad.defined())
        step[p].before = memory.is_view(position_of[p], grad) ? grad.clone() : grad;
      hand_over(p);
    }
  }

  /// A parameter that nobody used keeps its .grad as it was, undefined included; one that others
  /// used gets the mean.
  void settle_unused() {
    for (std::size_t p = 0; p < step.size(); ++p) {
      if (step[p].used) continue;
      ++report.unused_here;
      at::Tensor& grad = state.trained[p].tensor.mutable_grad();
      if (used[p] != 0) {
        grad = memory.view(position_of[p]);
      } else {
        ++report.unused_everywhere;
        if (grad.defined() && memory.is_view(position_of[p], grad)) grad.copy_(step[p].before);
      }
    }
  }

  void end_step() {
    std::vector<double> ready_s;
    for (std::size_t p = 0; p < step.size(); ++p) {
      ready_s.push_back(step[p].ready_s);
      if (learning) expected[p] = std::max(1, step[p].gradients);
      step[p] = {};
    }
    learning = any_gradient = weighted = false;
    if (planner.after_step(ready_s)) take_plan();
  }

  void set_batch(std::int64_t count) {
    const std::lock_guard lock(mutex);
    if (count < 0)
      throw UsageError(fmt::format("set_batch: expected at least 0 samples, found {}", count));
    if (executor.in_step())
      throw UsageError("set_batch: this step's backward has begun; call it before backward");
    samples = all_samples = static_cast<double>(count);
    weighted = true;
    samples_work = communicator.all_reduce({&all_samples, {1}, DType::f64}, comm::Reduce::sum,
                                           "samples of the step");
  }

  void refuse_thawed() const {
    for (const auto& [name, tensor] : state.frozen)
      if (tensor.requires_grad())
        throw UsageError(
            fmt::format("parameter \"{}\" did not require a gradient when DataParallel was "
                        "constructed and does now; "
                        "construct a new DataParallel on every rank",
                        name));
  }
};

DataParallel::DataParallel(torch::nn::Module& model, comm::Communicator& communicator,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(named_parameters(model), named_buffers(model),
                                   sparse_module(model), communicator, options)) {}

DataParallel::DataParallel(const NamedTensors& parameters, const NamedTensors& buffers,
                           comm::Communicator& communicator, DataParallelOptions options)
    : impl_(std::make_unique<Impl>(parameters, buffers, "", communicator, options)) {}

DataParallel::~DataParallel() {
  if (!impl_->executor.in_step()) return;
  // Collectives may be in flight and write into these buffers: waiting could take until the
  // timeout, freeing them could corrupt memory, so they stay for the rest of the process.
  log::warning(
      "DataParallel was destroyed inside a step that finish() did not end; its buffers are kept");
  impl_->hooks.reset();
  static_cast<void>(impl_.release());
}

DataParallel::NoSync::NoSync(DataParallel& owner) : owner_(owner) { ++owner_.impl_->accumulating; }
DataParallel::NoSync::~NoSync() { --owner_.impl_->accumulating; }

void DataParallel::set_batch(std::int64_t samples) { impl_->set_batch(samples); }
StepReport DataParallel::finish() { return impl_->finish(); }
const doc::Plan& DataParallel::plan() const { return *impl_->planner.plan(); }
doc::Workload DataParallel::workload() const { return impl_->planner.workload(); }
bool DataParallel::settled() const { return impl_->planner.settled(); }

}  // namespace linerate::torch_adapter
