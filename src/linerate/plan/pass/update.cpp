// The optimizer: it waits for all exchanges that are not decoupled.
#include "linerate/plan/passes.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::plan {

void add_update(const PassInput& input, StepDraft& step) {
  if (input.schedule == Schedule::decoupled) return;
  const auto buckets = static_cast<std::int32_t>(step.exchanges.size());
  doc::Task task = observed_task(doc::TaskKind::update, step.operation("optimizer"),
                                 parts_of(input.workload).update_s);
  task.subject = doc::Subject::payloads;
  task.last = buckets - 1;
  const Handle update =
      step.tail == kNoTask ? step.tasks.append(task) : step.tasks.insert_before(step.tail, task);
  // Collectives end in the order of the buckets, and so do decodes: the last of each is enough.
  if (buckets > 0) step.tasks.wait(update, step.exchanges.back().received);
  const auto coded = [](const BucketExchange& x) { return x.received != x.receive; };
  const auto last = std::find_if(step.exchanges.rbegin(), step.exchanges.rend(), coded);
  if (last != step.exchanges.rend() && last != step.exchanges.rbegin())
    step.tasks.wait(update, last->received);
  for (const Handle h : step.settling) step.tasks.wait(update, h);
}

// What training sends besides gradients: which parameters were used and how the step went, rank 0's
// buffers, and how many samples each rank's batch holds.

namespace {

std::int32_t add_payload(doc::Content content, DType dtype, std::int64_t elements,
                         StepDraft& step) {
  return step.add_payload(
      {.content = content, .dtype = dtype, .elements = elements, .padded = elements});
}

Handle append_copy(std::int32_t payload, const char* operation, StepDraft& step) {
  return step.append_compute(
      step.task_on(payload, doc::TaskKind::copy, doc::Resource::compute, operation));
}

// A payload and its collective. Each message is packed, sent and unpacked. All messages of a step
// are packed before the first one is awaited, so they travel one after the other without a pause.
struct Message {
  std::int32_t payload;
  Handle collective;
};

Message send(std::int32_t payload, doc::TaskKind kind, const char* operation, std::int32_t root,
             StepDraft& step) {
  const Handle pack = append_copy(payload, "pack", step);
  step.tasks.wait(pack, step.backward_end);
  // Flags say whether a gradient was infinite: encodes find that out.
  if (step.last_checked != kNoTask) step.tasks.wait(pack, step.last_checked);
  doc::Task collective = step.task_on(payload, kind, doc::Resource::network, operation);
  collective.root = root;
  const Handle h = step.append_collective(collective);
  step.tasks.wait(h, pack);
  return {payload, h};
}

void receive(const Message& message, StepDraft& step) {
  const Handle unpack = append_copy(message.payload, "unpack", step);
  step.tasks.wait(unpack, message.collective);
  step.settling.push_back(unpack);
}

// Sums the samples of all batches, before the first gradient is scaled by this rank's share. A rank
// with 6 of 16 samples scales by 6/16, so the sum over ranks is the mean over samples.
void add_samples(StepDraft& step) {
  const std::int32_t payload = add_payload(doc::Content::samples, DType::f64, 1, step);
  const doc::Task sum =
      step.task_on(payload, doc::TaskKind::all_reduce, doc::Resource::network, "sum");
  const Handle h = step.exchanges.empty()
                       ? step.tasks.append(sum)
                       : step.tasks.insert_before(step.exchanges.front().first(), sum);
  // Scaling is in the compute lane's order: the first one to wait holds the others.
  for (const Handle ready : step.ready) step.tasks.wait(ready, h);
  step.samples = h;
}

std::int64_t flags_of(const PassInput& input) {
  return static_cast<std::int64_t>(input.workload.gradients.size()) +
         (input.compression ? doc::kCompressedStepFlags : doc::kStepFlags);
}

// The first pass. Forward, backward and the rest of the step become tasks of the compute lane, as
// the Workload times them. They are observed tasks: in training autograd runs them and reports
// their ends.

constexpr std::string_view kAutograd = "autograd";

bool every_layer_timed(const doc::Workload& workload) {
  return !workload.layers.empty() &&
         std::ranges::all_of(workload.layers,
                             [](const doc::Layer& layer) { return layer.forward_s.has_value(); });
}

// One task for each layer if every layer's time is known, else one for all. Layers that were timed
// one by one may add up to more than the pass; then all shrink alike. What they do not claim comes
// last.
void add_forward(const doc::Workload& w, double forward_s, StepDraft& step) {
  const auto layers = static_cast<std::int32_t>(w.layers.size());
  const doc::Task common = observed_task(doc::TaskKind::forward, step.operation(kAutograd), 0);
  const auto add = [&](double seconds, std::int32_t first, std::int32_t last) {
    step.forward.push_back(step.tasks.append(common));
    doc::Task& task = step.tasks[step.forward.back()];
    task.seconds = seconds;
    task.subject = first <= last ? doc::Subject::layers : doc::Subject::none;
    task.first = first;
    task.last = last;
  };
  if (!every_layer_timed(w)) return add(forward_s, 0, layers - 1);
  double sum = 0;
  for (const doc::Layer& layer : w.layers) sum += *layer.forward_s;
  // Layers timed one by one may add up to more than the pass they belong to.
  const double shrink = sum > forward_s && sum > 0 ? forward_s / sum : 1;
  for (std::int32_t l = 0; l < layers; ++l) add(*w.layers[to_index(l)].forward_s * shrink, l, l);
  // The loss, and whatever else no layer claims.
  if (const double rest = forward_s - sum * shrink; rest > 0) add(rest, 0, -1);
}

// A backward task for each gradient, which ends when the gradient is ready, and one for the rest.
// In training there always is a rest, because only the caller knows that no further gradient will
// come.
void add_backward(const doc::Workload& w, bool in_training, StepDraft& step) {
  doc::Task common = observed_task(doc::TaskKind::backward, step.operation(kAutograd), 0);
  common.subject = doc::Subject::gradients;
  double before = 0;
  for (std::size_t p = 0; p < w.gradients.size(); ++p) {
    step.ready.push_back(step.tasks.append(common));
    doc::Task& task = step.tasks[step.ready.back()];
    task.first = task.last = static_cast<std::int32_t>(p);
    task.seconds = w.gradients[p].ready_s - before;
    before = w.gradients[p].ready_s;
  }
  step.backward = step.ready;
  if (w.backward_s > before || in_training)
    step.tasks.append(observed_task(doc::TaskKind::backward, common.operation,
                                    std::max(0.0, w.backward_s - before)));
  step.backward_end = step.tasks.last(doc::Resource::compute);
}

}  // namespace

// Flags are numbers at the end of the last bucket, so the bucket's all-reduce also sums them. A
// flag is up if its sum is above zero. A message of its own would cost a start-up. The bucket then
// waits for the end of backward.
void add_flags(const PassInput& input, StepDraft& step) {
  const bool summed_as_it_is = !input.compression && (!input.codec || input.codec->is_cast);
  if (!input.housekeeping || !summed_as_it_is || input.form.gather) return;
  // Every rank has to know the flags before the second half of the exchange.
  if (input.schedule == Schedule::decoupled) return;
  doc::Payload& last = step.graph->payloads.back();
  last.flags = flags_of(input);
  last.elements += last.flags;
  last.padded += last.flags;
  const auto bucket = static_cast<std::int32_t>(step.graph->payloads.size() - 1);
  step.flags_packed = append_copy(bucket, "pack", step);
  step.tasks.wait(step.flags_packed, step.backward_end);
  step.backward_end = step.flags_packed;
}

// The flags, if none ride with a bucket, then the buffers; both are unpacked at the end. The
// optimizer waits for the unpacking (StepDraft::settling).
void add_housekeeping(const PassInput& input, StepDraft& step) {
  if (!input.housekeeping) return;
  if (input.weighted) add_samples(step);
  std::vector<Message> messages;
  if (step.flags_packed != kNoTask)
    messages.push_back(
        {static_cast<std::int32_t>(step.exchanges.size() - 1), step.exchanges.back().received});
  else
    messages.push_back(send(add_payload(doc::Content::flags, DType::u8, flags_of(input), step),
                            doc::TaskKind::all_reduce, "max", -1, step));
  if (input.housekeeping->buffer_bytes > 0)
    messages.push_back(
        send(add_payload(doc::Content::buffers, DType::u8, input.housekeeping->buffer_bytes, step),
             doc::TaskKind::broadcast, "move", 0, step));
  for (const Message& message : messages) receive(message, step);
  // When the flags are read all gradients are there, or nothing that the step's end needs.
  if (input.schedule == Schedule::decoupled) return;
  for (const BucketExchange& x : step.exchanges)
    if (x.received != messages.front().collective)
      step.tasks.wait(step.settling.front(), x.received);
}

bool layers_are_timed(const doc::Workload& workload) {
  return every_layer_timed(workload) &&
         std::ranges::all_of(workload.gradients,
                             [](const doc::Gradient& g) { return g.layer >= 0; });
}

doc::Task compute_task(doc::TaskKind kind, std::int16_t operation, doc::Subject subject,
                       std::int32_t first, std::int32_t last) {
  return {.kind = kind,
          .resource = doc::Resource::compute,
          .subject = subject,
          .operation = operation,
          .first = first,
          .last = last};
}

doc::Task observed_task(doc::TaskKind kind, std::int16_t operation, double seconds) {
  doc::Task task = compute_task(kind, operation);
  task.origin = doc::Origin::observed;
  task.seconds = seconds;
  return task;
}

void add_compute(const doc::Workload& workload, bool in_training, StepDraft& step) {
  const doc::OneRankParts parts = parts_of(workload);
  add_forward(workload, parts.forward_s, step);
  add_backward(workload, in_training, step);
  if (parts.tail_s > 0)
    step.tail =
        step.tasks.append(observed_task(doc::TaskKind::host, step.operation("tail"), parts.tail_s));
}

// A step that updates no factors has no arrivals of its own, so those of its gradients are made
// here.
double step_end_s(const PassInput& input, const StepDraft& step) {
  const Curvature& curvature = *input.curvature;
  if (input.update.factors) return curvature.done_s(input.cost, step.arrivals, step.placement);
  const FactorTraffic gradients = traffic_of(input, step, {});
  return curvature.done_s(input.cost, arrivals_of(input, gradients, {}), {});
}

}  // namespace linerate::plan
