// One exchange of a model. The constructor chooses where steps run: on the host (exec::Runner over
// the communicator) or on a device (StreamSteps over a process group). Everything else asks the
// runner and does not know which it is, except for a few places that name `streams_`.
#include "linerate/torch_adapter/parameter_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/kfac/curvature.hpp"
#include "linerate/torch_adapter/device_probe.hpp"
#include "linerate/torch_adapter/stream_compression.hpp"

namespace linerate::torch_adapter {
namespace {

/// By parameter: the K-FAC block that its gradient belongs to, -1 if there is none.
std::vector<std::int32_t> blocks_of(const std::vector<Parameter>& parameters,
                                    const Preconditioner* preconditioner) {
  std::vector<std::int32_t> block_of(parameters.size(), -1);
  if (!preconditioner) return block_of;
  const Blocks& blocks = preconditioner->blocks();
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const LayerSpec& layer = blocks[b]->layer();
      const at::Tensor& t = parameters[p].tensor;
      if (t.is_same(layer.weight) || t.is_same(layer.bias))
        block_of[p] = static_cast<std::int32_t>(b);
    }
  return block_of;
}

std::int64_t rows_of(const at::Tensor& t) { return t.dim() > 1 && t.numel() > 0 ? t.size(0) : 1; }

std::vector<doc::Gradient> planned(const std::vector<Parameter>& parameters,
                                   const std::vector<std::int32_t>& block_of) {
  std::vector<doc::Gradient> list;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, tensor, dtype, sizes, strides] = parameters[p];
    list.push_back({.name = name,
                    .elements = tensor.numel(),
                    .dtype = dtype,
                    .layer = block_of[p],
                    .rows = rows_of(tensor)});
  }
  return list;
}

/// The bucket whose values are there when this task is done, -1 for other tasks. The task is the
/// decode if the bucket is encoded, else the second half of the decoupled exchange.
std::int32_t bucket_arriving_with(const doc::TaskGraph& graph, std::uint32_t task) {
  const doc::Task& t = graph.tasks[task];
  if (t.subject != doc::Subject::payloads) return -1;
  if (t.kind == doc::TaskKind::decode) return t.first;
  const doc::Payload& payload = graph.payloads[to_index(t.first)];
  return t.kind == doc::TaskKind::all_gather && payload.content == doc::Content::gradients ? t.first
                                                                                           : -1;
}

/// Throws UsageError for a strategy that needs operations which a device cannot just enqueue.
void require_enqueued(const DataParallelOptions& options) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(
        fmt::format("strategy {}: a process group exchanges device memory here; expected "
                    "gradients, plain or by a compressor of linerate's, or K-FAC, found {}; leave "
                    "it out, or train on the CPU without device_group",
                    options.strategy, what));
  };
  const doc::Strategy strategy = plan::with_exchange(doc::parse_strategy(options.strategy));
  for (const doc::Component& extra : strategy.extras)
    if (!plan::is(extra, plan::Extra::curvature) &&
        !std::ranges::all_of(plan::compressors_in(extra), &StreamCompression::codes,
                             &doc::Component::name))
      refuse(fmt::format("\"{}\"", doc::to_text(extra)));
  // Only the text shows timers now: plans have them once times are measured.
  if (const std::string* timer = strategy.exchange.find("timer"); timer && *timer == "clock")
    refuse("timers");
}

std::unique_ptr<comm::TensorGroup> device_group_of(const std::string& name, c10::Device device,
                                                   const comm::Communicator& communicator) {
  if (const auto link = comm::link_rate())
    throw UsageError(
        fmt::format("process group \"{}\": expected no link where a device's back end (NCCL) "
                    "exchanges gradients, found one of {}. NCCL's sends cannot be paced. Leave the "
                    "link out, or train on the CPU without device_group",
                    name, format_bit_rate(link->value)));
  auto group = comm::make_tensor_group(name, device);
  if (group->rank() != communicator.rank() || group->size() != communicator.size())
    throw UsageError(fmt::format(
        "process group \"{}\": expected the communicator's ranks in their order, rank {} of {}, "
        "found rank {} of {}; make the communicator of this group",
        name, communicator.rank(), communicator.size(), group->rank(), group->size()));
  return group;
}

}  // namespace

ParameterExchange::ParameterExchange(ModelState state, comm::Communicator& communicator,
                                     const DataParallelOptions& options, const std::string& who)
    : communicator_(communicator),
      state_(std::move(state)),
      memory_(communicator.reads_pieces() && options.device_group.empty()),
      count_(state_.trained.size()),
      compression_(memory_, communicator.rank(), communicator.size(), options.seed),
      tensors_(
          state_.trained,
          tensors_of(options.buffers == BufferPolicy::broadcast ? state_.buffers : NamedTensors()),
          count_, memory_, compression_),
      pre_(KfacInside::preconditioner(options.preconditioner)),
      uses_(pre_ ? 2 * pre_->blocks().size() : 0),
      block_of_(blocks_of(state_.trained, pre_)) {
  make_runner(options, who);
  RunPlanner::Options planning{plan::with_exchange(doc::parse_strategy(options.strategy)),
                               options.cluster, options.measured_steps, tensors_.buffer_bytes()};
  planning.replan_above = options.replan_above;
  planning.most_above_ddp = options.most_above_ddp;
  if (streams_) planning.enqueued = enqueued_steps();
  if (pre_) planning.second_order = second_order_of(*pre_, communicator);
  comm::require_success(communicator, who + ": strategy", [&] {
    kfac_ = shared_kfac(planning.strategy, pre_);
    if (kfac_) planning.second_order->measured = kfac_->sharing != plan::Sharing::dp;
    planner_.emplace(communicator, planned(state_.trained, block_of_), std::move(planning));
  });
  if (kfac_ && communicator.rank() == 0) {
    const auto layers = static_cast<std::int64_t>(planner_->plan()->blocks.size());
    const std::string idle = plan::idle_ranks(*kfac_, layers, communicator.size());
    if (!idle.empty()) log::warning(idle);
  }
  tensors_.register_with(*runner_);
  if (pre_) {
    curvature_.emplace(*pre_, memory_, communicator_, tensors_, state_.trained, block_of_);
    curvature_->register_with(*runner_);
    pre_->follow([planned = *kfac_](std::int64_t step) { return planned.update_of_step(step); });
  }
  take_plan();
  if (streams_) streams_->measure(planner_->needs_times());
}

ParameterExchange::~ParameterExchange() = default;

void ParameterExchange::make_runner(const DataParallelOptions& options, const std::string& who) {
  if (options.device_group.empty()) {
    runner_ = std::make_unique<exec::Runner>(communicator_, memory_, options.recorder);
    return;
  }
  comm::require_success(communicator_, who + ": device_group", [&] {
    require_enqueued(options);
    const c10::Device device = state_.trained.front().tensor.device();
    auto steps = std::make_unique<StreamSteps>(
        communicator_, memory_, device,
        device_group_of(options.device_group, device, communicator_), options.recorder);
    streams_ = steps.get();
    memory_.set_before_freeing([this] { runner_->drain(); });
    runner_ = std::move(steps);
    enqueued_ = std::make_unique<StreamCompression>(memory_, device, communicator_.rank(),
                                                    communicator_.size(), options.seed);
  });
  coding_ = enqueued_.get();
  tensors_.enqueue_only(*enqueued_, communicator_.rank(), pre_ != nullptr);
  if (pre_) pre_->set_enqueues(true);
}

/// Hands a new plan to the runner, the codecs, the tensors and K-FAC. The runner comes first: after
/// its set_plan() no task uses the memory that the others free.
void ParameterExchange::take_plan() {
  for (const std::string& name : exec::Compression::operations_of(*planner_->plan()))
    runner_->set_operation(name, compression());
  runner_->set_plan(planner_->plan(), planner_->steps());  // nobody uses what the others free
  compression().set_plan(planner_->plan());
  tensors_.set_plan(planner_->plan(), planner_->order());
  shapes_.clear();
  for (const Parameter* parameter : tensors_.parameters_in_order())
    shapes_.push_back({parameter->tensor.numel(), rows_of(parameter->tensor)});
  if (curvature_) curvature_->set_plan(planner_->plan());
  memory_.forget(planner_->plan()->gradient_shapes.empty() ? SlotOrder::memory
                                                           : SlotOrder::logical);
}

/// The name of the variant that the step runs is put together from four things: whether gradients
/// may leave early, the compressor's phase, K-FAC's updates that are due, and whether batches are
/// weighted.
void ParameterExchange::begin(Sending sending, std::optional<std::int64_t> samples,
                              const std::string& label) {
  const doc::Plan& plan = *planner_->plan();
  const bool is_first = sending == Sending::after_backward || planner_->steps() == 0;
  std::string name =
      plan::in_phase(is_first ? plan::kFirstStep : plan::kSteady, compression().phase());
  if (curvature_)
    name = plan::in_phase(name, plan::name_of(kfac_->update_of_step(curvature_->step())));
  if (samples) name = plan::weighted(name);
  const std::int32_t index = plan.variant_index(name);
  LINERATE_CHECK(index >= 0, fmt::format("strategy {}: no variant \"{}\"", plan.strategy, name));
  runner_->compute(
      [&] { memory_.lay_out(plan.variants[to_index(index)], tensors_.parameters_in_order()); });
  tensors_.begin_step(communicator_.size(), samples);
  compression().begin_step();
  compression().begin_dense(plan.variants[to_index(index)], shapes_);
  if (streams_) streams_->check_sums(tensors_.looks_for_infinite() && !tensors_.compresses());
  if (curvature_) curvature_->begin_round();
  count_.report_again();
  uses_.report_again();
  in_backward_ = false;
  label_ = label;
  runner_->begin_variant(name, label);
}

/// Tells the runner that backward has begun, which starts the tasks that wait for it. From here on
/// the loss scale of the step is fixed.
void ParameterExchange::enter_backward() {
  if (in_backward_) return;
  in_backward_ = true;
  tensors_.set_loss_scale(loss_scale_);
  compression().set_loss_scale(loss_scale_);
  runner_->report_before_backward();
}

void ParameterExchange::report(std::size_t parameter) {
  enter_backward();
  count_[parameter].reported = true;
  runner_->report_backward(tensors_.position_of(parameter));
  if (block_of_[parameter] >= 0) report_curvature_of(block_of_[parameter]);
}

/// Reports factor G of a layer when it is complete. Then the layer was used as often as in earlier
/// steps, and all its gradients are reported.
void ParameterExchange::report_curvature_of(std::int32_t block) {
  const std::int32_t g = doc::factor_index(block, doc::FactorSide::g);
  if (!uses_.is_complete(to_index(g))) return;
  for (std::size_t p = 0; p < block_of_.size(); ++p)
    if (block_of_[p] == block && !count_[p].reported) return;
  uses_[to_index(g)].reported = true;
  runner_->report_factor(g);
}

void ParameterExchange::report_inputs(std::int32_t block) {
  const std::int32_t a = doc::factor_index(block, doc::FactorSide::a);
  uses_[to_index(a)].reported = true;
  runner_->report_before_factor(a);
  runner_->report_factor(a);
}

/// The end of a round. Reports in plan order what no hook has reported, ends the compute lane, and
/// waits for the flags. Then codecs keep or drop what the round left. The tasks of the optimizer's
/// turn are reported after that, because such a report lets further tasks go.
void ParameterExchange::run_to_end() {
  enter_backward();
  const bool knows_units = tensors_.compresses() || compression_.sends_owed();
  if (knows_units && tensors_.loss_scale() != loss_scale_) tensors_.send_again();
  for (const std::int32_t p : tensors_.order())
    if (!count_[to_index(p)].reported) report(to_index(p));
  runner_->report_all(doc::TaskKind::factor);
  runner_->report_all(doc::TaskKind::backward);
  runner_->end_step();
  if (streams_) tensors_.agree(communicator_, label_ + ": flags");
  if (!tensors_.accepted()) runner_->drain();
  std::exception_ptr differs;  // the step ends all the same
  try {
    // All-gathers of "dear" may be in flight, and ranks could begin them and this comparison in
    // different orders, so they are waited for first.
    if (tensors_.accepted() && tensors_.is_rescaled()) {
      if (!streams_) runner_->drain();
      tensors_.require_same_scale(communicator_, label_);
    }
  } catch (const std::exception&) {
    differs = std::current_exception();
    runner_->drain();
  }
  const bool counts = tensors_.accepted() && !differs;
  if (counts && compression().sees_dense_means()) {
    runner_->drain();
    tensors_.pass_dense_means(compression_);
  }
  counts ? compression().keep(untaken()) : compression().drop();
  if (curvature_) curvature_->end_round(counts);
  // The caller does the rest of the step: preconditioning, update, loading. The plan has it as
  // tasks.
  runner_->report_all(doc::TaskKind::precondition);  // of the last step: updates waited for it
  runner_->report_all(doc::TaskKind::update);
  runner_->report_all(doc::TaskKind::host);
  if (!differs) return;
  runner_->drain();  // of what these have let go
  std::rethrow_exception(differs);
}

/// The names of parameters whose means nobody takes. As a rule these are the parameters that no
/// rank used. If residuals travelled dense and a mean has overflowed, it is all parameters, since a
/// scaler skips such a step. A device tells that at the step's end instead.
std::set<std::string> ParameterExchange::untaken() {
  if (streams_ || !compression_.sends_owed()) return tensors_.used_nowhere();
  runner_->drain();
  if (tensors_.means_are_finite()) return tensors_.used_nowhere();
  std::set<std::string> all;
  for (const Parameter& parameter : state_.trained) all.insert(parameter.name);
  return all;
}

bool ParameterExchange::gradients_may_follow() const {
  return reaches_next_step(*planner_->plan()) && !(streams_ && tensors_.compresses());
}

std::vector<ArrivingBucket> ParameterExchange::arriving() {
  const doc::TaskGraph& graph = runner_->graph();
  std::vector<ArrivingBucket> buckets;
  const at::Tensor infinite = streams_ ? tensors_.take_what_has_arrived() : at::Tensor();
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    const std::int32_t b = bucket_arriving_with(graph, i);
    if (b < 0) continue;
    ArrivingBucket& bucket = buckets.emplace_back();
    bucket.arrivals = {runner_->current(i)};
    bucket.infinite = infinite;
    bucket.arrays = {memory_.values(b)};
    const doc::Payload& payload = graph.payloads[to_index(b)];
    for (std::int32_t m = payload.begin; m < payload.end; ++m) {
      const auto position = to_index(graph.members[to_index(m)]);
      const auto p = to_index(tensors_.order()[position]);
      bucket.names.push_back(state_.trained[p].name);
      bucket.parameters.push_back(state_.trained[p].tensor);
      bucket.gradients.push_back(tensors_.mean(p));
      bucket.layers.push_back(block_of_[p]);
    }
  }
  if (!curvature_) return buckets;
  return by_layer(buckets,
                  [this](std::int32_t block) { return curvature_->late_direction(block); });
}

/// How the planner gets times of steps that are enqueued. A device's times are read all at once,
/// when a window of steps is over. Until then nothing waits for the device.
EnqueuedSteps ParameterExchange::enqueued_steps() {
  const auto read = [this](std::span<StepTimes> window) {
    if (measured_.empty()) return;  // plans go by the order alone
    LINERATE_CHECK(measured_.size() == window.size(), "a window of other steps than were measured");
    const std::vector<std::int64_t> times_ns = streams_->read_moments();
    for (std::size_t i = 0; i < window.size(); ++i) {
      resolve(measured_[i], times_ns);
      window[i] = times_of(measured_[i], blocks());
    }
    measured_.clear();
  };
  return {read, [this](std::int64_t largest_bytes) {
            return std::make_unique<GroupCallTrain>(streams_->group(), communicator_,
                                                    streams_->device(), largest_bytes);
          }};
}

bool ParameterExchange::learn(MeasuredStep step) {
  uses_.end_step();
  step.gradients = count_.end_step();
  if (curvature_) {
    step.update = kfac_->update_of_step(curvature_->step());
    step.inverses = curvature_->inverses();
  }
  StepTimes times;
  if (streams_ && streams_->measures()) {
    times.update = step.update;
    measured_.push_back(std::move(step));
  } else {
    times = times_of(step, blocks());
  }
  const bool changed = planner_->after_step(std::move(times));
  if (streams_) streams_->measure(planner_->needs_times());
  return changed;
}

std::int64_t ParameterExchange::gradient_bytes() const {
  const doc::TaskGraph& graph = runner_->graph();
  // A payload counts once, although a decoupled exchange moves it in two halves.
  std::set<std::int32_t> sent;
  for (const doc::Task& t : graph.tasks)
    if (t.subject == doc::Subject::payloads && doc::is_communication(t.kind)) sent.insert(t.first);
  std::int64_t bytes = 0;
  for (const std::int32_t i : sent) {
    const doc::Payload& p = graph.payloads[to_index(i)];
    if (p.content == doc::Content::gradients || p.content == doc::Content::encoded)
      bytes += (p.elements - p.flags) * size_of(p.dtype);
  }
  return bytes;
}

}  // namespace linerate::torch_adapter
