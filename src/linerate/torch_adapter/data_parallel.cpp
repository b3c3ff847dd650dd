#include "linerate/torch_adapter/data_parallel.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <mutex>
#include <optional>

#include "linerate/comm/agreement.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/replan/run_planner.hpp"
#include "linerate/torch_adapter/gradient_count.hpp"
#include "linerate/torch_adapter/gradient_hooks.hpp"
#include "linerate/torch_adapter/parameters.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"
#include "linerate/torch_adapter/state_broadcast.hpp"
#include "linerate/torch_adapter/step_operations.hpp"

namespace linerate::torch_adapter {
namespace {

double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(steady_ns() - start_ns) * 1e-9;
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

std::vector<replan::PlannedParameter> planned(const std::vector<Parameter>& parameters) {
  std::vector<replan::PlannedParameter> list;
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
  comm::require_no_problem(communicator, "DataParallel", wrong);
  comm::require_same(communicator, "DataParallel: model", describe(parameters, buffers));
  comm::require_same(
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
        state(agreed_state(parameters, all_buffers, problem, c, o)),
        count(state.trained.size()),
        tensors(tensors_of(state.trained),
                o.buffers == BufferPolicy::broadcast ? tensors_of(state.buffers)
                                                     : std::vector<at::Tensor>{},
                count, memory),
        runner(c, memory, o.recorder) {
    comm::require_success(c, "DataParallel: strategy", [&] {
      planner.emplace(c, planned(state.trained),
                      replan::RunPlanner::Options{doc::parse_strategy(o.strategy), o.cluster,
                                                  o.measured_steps, tensors.buffer_bytes()});
    });
    const c10::NoGradGuard no_grad;
    broadcast_memory(communicator, memory_of(tensors_of(state.trained)), "initial parameters");
    broadcast_memory(communicator, memory_of(tensors_of(state.frozen)),
                     "initial frozen parameters");
    broadcast_memory(communicator, memory_of(tensors_of(state.buffers)), "initial buffers");
    tensors.register_with(runner);
    take_plan();
    hooks = std::make_unique<GradientHooks>(tensors_of(state.trained),
                                            [this](std::size_t p) { on_gradient(p); });
  }

  comm::Communicator& communicator;
  ModelState state;
  PayloadMemory memory;
  GradientCount count;
  StepTensors tensors;
  std::optional<replan::RunPlanner> planner;
  exec::Runner runner;
  std::mutex mutex;  // hooks may fire on several threads
  int accumulating = 0;
  std::int64_t first_gradient_ns = -1;
  std::unique_ptr<GradientHooks> hooks;  // last: gone before anything that a hook uses

  void take_plan() {
    runner.set_plan(planner->plan(), planner->steps());
    tensors.set_order(planner->order());
    memory.forget();
  }

  /// As scheduled, or the variant for batches of different sizes.
  void begin_step(std::optional<std::int64_t> samples) {
    const doc::Plan& plan = *planner->plan();
    const doc::TaskGraph* graph = &plan.variant_of_step(runner.next_step());
    const std::string weighted = plan::weighted(graph->name);
    if (samples) graph = &plan.variants[static_cast<std::size_t>(plan.variant_index(weighted))];
    memory.lay_out(*graph, tensors.parameters_in_order());
    tensors.begin_step(communicator.size());
    first_gradient_ns = -1;
    if (samples) tensors.set_samples(*samples);
    runner.begin_variant(graph->name);
  }

  /// The step's backward pass has begun, as far as hooks can tell.
  void begin_backward() {
    if (!runner.in_step()) begin_step(std::nullopt);
    if (first_gradient_ns >= 0) return;
    first_gradient_ns = steady_ns();
    runner.report_before_backward();
  }

  void on_gradient(std::size_t p) {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    ParameterStep& mine = count[p];
    mine.used = true;
    if (accumulating > 0) return;
    begin_backward();
    ++mine.gradients;
    mine.ready_s = seconds_since(first_gradient_ns);
    if (mine.reported)
      throw UsageError(
          fmt::format("parameter \"{}\" got gradient number {} of this step, {} were seen in the "
                      "first step and its bucket is already on its way; run all but the last "
                      "backward of a step inside DataParallel::accumulate()",
                      state.trained[p].name, mine.gradients, count.expected(p)));
    if (count.is_complete(p)) report(p);
  }

  void report(std::size_t p) {
    count[p].reported = true;
    runner.report_backward(tensors.position_of(p));
  }

  StepReport finish() {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    if (!count.any() && !runner.in_step()) return {};
    refuse_thawed();
    begin_backward();
    const std::int64_t start = steady_ns();
    // In the order of the plan, so that a bucket leaves as soon as its own gradients are in.
    for (const std::int32_t p : tensors.order())
      if (!count[static_cast<std::size_t>(p)].reported) report(static_cast<std::size_t>(p));
    runner.report_all(doc::TaskKind::backward);
    runner.drain();
    const StepReport report = report_of(seconds_since(start));
    // What is left is the caller's: the optimizer, and whatever follows it.
    runner.report_all(doc::TaskKind::update);
    runner.report_all(doc::TaskKind::host);
    if (planner->after_step(count.end_step())) take_plan();
    return report;
  }

  StepReport report_of(double exposed_s) const {
    const doc::TaskGraph& graph = runner.graph();
    StepReport report;
    report.variant = graph.name;
    report.exposed_s = exposed_s;
    report.copy_s = tensors.copy_s();
    report.unused_here = tensors.unused_here();
    report.unused_everywhere = tensors.unused_everywhere();
    // The second half of a decoupled exchange moves the same payload.
    for (const doc::Task& t : graph.tasks)
      if (t.kind == doc::TaskKind::all_reduce || t.kind == doc::TaskKind::reduce_scatter) {
        const doc::Payload& p = graph.payloads[static_cast<std::size_t>(t.first)];
        if (p.content == doc::Content::gradients || p.content == doc::Content::encoded)
          report.bytes += t.bytes;
      }
    return report;
  }

  void set_batch(std::int64_t samples) {
    const std::lock_guard lock(mutex);
    const c10::NoGradGuard no_grad;
    if (samples < 0)
      throw UsageError(fmt::format("set_batch: expected at least 0 samples, found {}", samples));
    if (runner.in_step())
      throw UsageError(
          "set_batch: this step's backward has begun, or its batch was set before; call it once, "
          "before backward");
    begin_step(samples);
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
  if (!impl_->runner.in_step()) return;
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
const doc::Plan& DataParallel::plan() const { return *impl_->planner->plan(); }
doc::Workload DataParallel::workload() const { return impl_->planner->workload(); }
bool DataParallel::settled() const { return impl_->planner->settled(); }

}  // namespace linerate::torch_adapter
