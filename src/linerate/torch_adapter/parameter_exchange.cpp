#include "linerate/torch_adapter/parameter_exchange.hpp"

#include <algorithm>
#include <set>

#include "linerate/comm/agreement.hpp"

namespace linerate::torch_adapter {
namespace {

std::vector<at::Tensor> sent_buffers(const ModelState& state, BufferPolicy policy) {
  std::vector<at::Tensor> tensors;
  if (policy == BufferPolicy::broadcast)
    for (const auto& [name, tensor] : state.buffers) tensors.push_back(tensor);
  return tensors;
}

std::vector<replan::PlannedParameter> planned(const std::vector<Parameter>& parameters) {
  std::vector<replan::PlannedParameter> list;
  for (const Parameter& p : parameters) {
    const at::Tensor& t = p.tensor;
    const std::int64_t rows = t.dim() > 1 && t.numel() > 0 ? t.size(0) : 1;
    list.push_back({p.name, t.numel(), p.dtype, rows});
  }
  return list;
}

/// The bucket whose values are there when this task is done, -1 for others: that of the decode
/// where it is encoded, else of the second half.
std::int32_t bucket_arriving_with(const doc::TaskGraph& graph, std::uint32_t task) {
  const doc::Task& t = graph.tasks[task];
  if (t.subject != doc::Subject::payloads) return -1;
  if (t.kind == doc::TaskKind::decode) return t.first;
  const doc::Payload& payload = graph.payloads[static_cast<std::size_t>(t.first)];
  return t.kind == doc::TaskKind::all_gather && payload.content == doc::Content::gradients ? t.first
                                                                                           : -1;
}

}  // namespace

ParameterExchange::ParameterExchange(ModelState state, comm::Communicator& communicator,
                                     const DataParallelOptions& options, const std::string& who)
    : communicator_(communicator),
      state_(std::move(state)),
      memory_(communicator.reads_pieces()),
      count_(state_.trained.size()),
      compression_(memory_, communicator.rank(), communicator.size(), options.seed),
      tensors_(state_.trained, sent_buffers(state_, options.buffers), count_, memory_,
               compression_),
      runner_(communicator, memory_, options.recorder) {
  comm::require_success(communicator, who + ": strategy", [&] {
    planner_.emplace(
        communicator, planned(state_.trained),
        replan::RunPlanner::Options{doc::parse_strategy(options.strategy), options.cluster,
                                    options.measured_steps, tensors_.buffer_bytes()});
  });
  tensors_.register_with(runner_);
  take_plan();
}

void ParameterExchange::take_plan() {
  compression_.set_plan(planner_->plan());
  for (const std::string& name : exec::Compression::operations_of(*planner_->plan()))
    runner_.set_operation(name, compression_);
  runner_.set_plan(planner_->plan(), planner_->steps());
  tensors_.set_plan(planner_->plan(), planner_->order());
  memory_.forget();
}

void ParameterExchange::begin(Sending sending, std::optional<std::int64_t> samples,
                              const std::string& label) {
  const doc::Plan& plan = *planner_->plan();
  const bool is_first = sending == Sending::after_backward || planner_->steps() == 0;
  std::string variant =
      plan::in_phase(is_first ? plan::kFirstStep : plan::kSteady, compression_.phase());
  if (samples) variant = plan::weighted(variant);
  memory_.lay_out(plan.variants[static_cast<std::size_t>(plan.variant_index(variant))],
                  tensors_.parameters_in_order());
  tensors_.begin_step(communicator_.size(), samples);
  compression_.begin_step();
  count_.report_again();
  in_backward_ = false;
  runner_.begin_variant(variant, label);
}

/// What waits for the beginning of backward may start.
void ParameterExchange::enter_backward() {
  if (!in_backward_) runner_.report_before_backward();
  in_backward_ = true;
}

void ParameterExchange::report(std::size_t parameter) {
  enter_backward();
  count_[parameter].reported = true;
  runner_.report_backward(tensors_.position_of(parameter));
}

void ParameterExchange::run_to_end() {
  enter_backward();
  for (const std::int32_t p : tensors_.order())
    if (!count_[static_cast<std::size_t>(p)].reported) report(static_cast<std::size_t>(p));
  runner_.report_all(doc::TaskKind::backward);
  runner_.end_step();
  if (tensors_.accepted()) {
    compression_.keep();
  } else {
    runner_.drain();
    compression_.drop();
  }
  // The rest of the step is the caller's.
  runner_.report_all(doc::TaskKind::update);
  runner_.report_all(doc::TaskKind::host);
}

bool ParameterExchange::gradients_may_follow() const {
  const auto& variants = planner_->plan()->variants;
  return std::any_of(variants.begin(), variants.end(),
                     [](const doc::TaskGraph& g) { return !g.next_step.empty(); });
}

std::vector<ArrivingBucket> ParameterExchange::arriving() const {
  const doc::TaskGraph& graph = runner_.graph();
  std::vector<ArrivingBucket> buckets;
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    const std::int32_t b = bucket_arriving_with(graph, i);
    if (b < 0) continue;
    ArrivingBucket& bucket = buckets.emplace_back();
    bucket.arrival = runner_.current(i);
    const doc::Payload& payload = graph.payloads[static_cast<std::size_t>(b)];
    for (std::int32_t m = payload.begin; m < payload.end; ++m) {
      const auto position = static_cast<std::size_t>(graph.members[static_cast<std::size_t>(m)]);
      const auto p = static_cast<std::size_t>(tensors_.order()[position]);
      bucket.names.push_back(state_.trained[p].name);
      bucket.parameters.push_back(state_.trained[p].tensor);
      bucket.gradients.push_back(tensors_.mean(p));
    }
  }
  return buckets;
}

bool ParameterExchange::learn() { return planner_->after_step(count_.end_step()); }

std::int64_t ParameterExchange::gradient_bytes() const {
  const doc::TaskGraph& graph = runner_.graph();
  // The second half of a decoupled exchange moves the same payload.
  std::set<std::int32_t> sent;
  for (const doc::Task& t : graph.tasks)
    if (t.subject == doc::Subject::payloads && doc::is_communication(t.kind)) sent.insert(t.first);
  std::int64_t bytes = 0;
  for (const std::int32_t i : sent) {
    const doc::Payload& p = graph.payloads[static_cast<std::size_t>(i)];
    if (p.content == doc::Content::gradients || p.content == doc::Content::encoded)
      bytes += (p.elements - p.flags) * size_of(p.dtype);
  }
  return bytes;
}

}  // namespace linerate::torch_adapter
