// A StreamRunner decides what is enqueued and which streams wait; this file gives it the device,
// the collectives and the operations. Between the two may stand a StepRecording, which takes the
// times of tasks.
#include "linerate/torch_adapter/stream_steps.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::torch_adapter {

using doc::Origin;
using doc::TaskKind;

StreamSteps::StreamSteps(comm::Communicator& communicator, PayloadMemory& memory,
                         c10::Device device, std::unique_ptr<comm::TensorGroup> group,
                         exec::Recorder* recorder)
    : communicator_(communicator),
      memory_(memory),
      lies_on_(device),
      group_(std::move(group)),
      recorder_(recorder) {}

/// If an exception unwinds, the other ranks hear of it now, because this rank will not finish the
/// step. Then this waits in the program's stream for all that is enqueued, whose memory is about to
/// be freed there.
StreamSteps::~StreamSteps() {
  if (in_step_ && std::uncaught_exceptions() > unwinding_)
    communicator_.abort("an exception was thrown while the collectives of a step were under way");
  if (!runner_ || failure_) return;
  try {
    drain();
  } catch (const std::exception&) {  // the device is gone, and its memory with it
  }
}

void StreamSteps::set_operation(const std::string& name, exec::Operation& operation) {
  operations_[name] = &operation;
}

void StreamSteps::check_executable(const doc::TaskGraph& graph, const doc::Task& task) const {
  const auto refuse = [&](const std::string& what) {
    throw on_every_rank(UsageError(fmt::format(
        "plan \"{}\", variant \"{}\", {}: {}; choose another strategy, or train on the CPU",
        plan_->strategy, graph.name, doc::title_of(*plan_, graph, task), what)));
  };
  if (is_communication(task.kind)) {
    exec::check_collective(*plan_, task);
    if (task.kind == TaskKind::all_gather_v && exec::counts_of(graph, task.first) < 0)
      refuse("on a device ranks gather parts of one size, or tell each other their sizes");
    return;
  }
  if (doc::is_timer(*plan_, task)) refuse("a device has no timer");
  const std::string_view name = plan_->operation_name(task);
  if (operations_.find(name) == operations_.end())
    refuse(fmt::format("nothing can execute the operation \"{}\" on a device", name));
}

/// Makes a process group for each part that exchanges payloads. All ranks have had the same Plans,
/// so all come here for the same groups.
void StreamSteps::make_parts() {
  std::string place;
  for (const doc::TaskGraph& graph : plan_->variants)
    for (const doc::Task& task : graph.tasks) {
      if (!is_communication(task.kind) || task.group == doc::kWhole) continue;
      const doc::Group& group = plan_->group_of(task);
      if (parts_.contains(group.parts)) continue;
      // Others may split the process group, too.
      if (place.empty())
        place = comm::broadcast_text(communicator_, fmt::format("linerate {}", steady_ns()),
                                     "name of groups on a device");
      const std::vector<std::int32_t>& ranks =
          group.parts[to_index(std::max(group.part_of(group_->rank()), 0))];
      parts_[group.parts] = group_->part(
          ranks, fmt::format("{} \"{}\" of ranks {}", place, group.name, fmt::join(ranks, ", ")));
    }
}

comm::TensorGroup& StreamSteps::group_of(const doc::Task& task) const {
  return task.group == doc::kWhole ? *group_ : *parts_.at(plan_->group_of(task).parts);
}

/// Takes a plan. All that the plan before has enqueued comes before what this one enqueues.
void StreamSteps::set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t) {
  LINERATE_CHECK(!in_step_, "a plan replaced inside a step");
  if (runner_) drain();
  agree_on(*plan, communicator_);
  plan_ = std::move(plan);
  names_.clear();
  for (const doc::TaskGraph& graph : plan_->variants) {
    for (const doc::Task& task : graph.tasks)
      if (task.origin == Origin::executed) check_executable(graph, task);
    names_.emplace_back(*plan_, graph, nullptr);
  }
  make_parts();
  auto program = exec::make_stream_program(plan_, communicator_.rank());
  runner_.reset();
  device_ = make_tensor_device(
      lies_on_, program->lanes.count(), [this](const exec::StreamWork& work) { run(work); },
      program->lanes.of_network());
  if (moments_) measuring_clock_->follow(device_->streams());
  if (recorder_) {
    // Its moments go on through a change of plan, and are read together.
    if (!clock_) clock_ = make_tensor_clock(lies_on_);
    clock_->follow(device_->streams());
    if (!times_) {
      times_ = std::make_shared<exec::StreamTimes>(clock_);
      recorder_->follow(times_, lies_on_.is_cpu() ? std::string() : type_name(lies_on_));
    }
    recording_.emplace(*device_, *recorder_, times_, program);
    runner_.emplace(std::move(program), *recording_);
  } else {
    runner_.emplace(std::move(program), *device_);
  }
  step_ = -1;
}

// Planners' moments have marks of their own, so that those of a recorder stay as long as it needs
// them.

void StreamSteps::measure(bool yes) {
  if (!yes) return moments_.reset();
  if (moments_) return;
  measuring_clock_ = make_tensor_clock(lies_on_);
  measuring_clock_->follow(device_->streams());
  begin_moments();
}

void StreamSteps::begin_moments() {
  RECORD_USER_SCOPE("compare clocks");
  moments_ = std::make_shared<exec::StreamTimes>(measuring_clock_);
}

std::int64_t StreamSteps::moment() {
  if (!moments_ || failure_) return steady_ns();
  device_->compute_after_caller();
  return moments_->now();
}

std::vector<std::int64_t> StreamSteps::read_moments() {
  std::vector<std::int64_t> times_ns;
  {
    RECORD_USER_SCOPE("times of measured steps");
    times_ns = moments_->read_by_device();
  }
  begin_moments();
  return times_ns;
}

/// Runs `act`, which enqueues. After an exception it is unknown how much was enqueued, so no later
/// call may enqueue more.
template <typename Act>
void StreamSteps::enqueueing(Act&& act) {
  if (failure_) refuse_after(failure_);
  LINERATE_CHECK(runner_.has_value(), "a step without a plan");
  const c10::NoGradGuard no_grad;
  try {
    act();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void StreamSteps::begin_variant(std::string_view variant, const std::string& label) {
  enqueueing([&] {
    LINERATE_CHECK(!in_step_, "a step begun inside a step");
    variant_ = plan_->variant_index(variant);
    LINERATE_CHECK(variant_ >= 0, fmt::format("no variant \"{}\"", variant));
    label_ = label;
    waited_before_ = runner_->counts().host_waits;
    device_->compute_after_caller();
    if (recording_) recording_->begin_step(variant_);
    if (moments_) moments_->begin_step();
    runner_->fork();  // the batch's weight lies in a payload
    step_ = runner_->begin_step(variant_);
    in_step_ = true;
  });
}

const doc::TaskGraph& StreamSteps::graph() const { return plan_->variants[to_index(variant_)]; }

bool StreamSteps::is_left(std::uint32_t task) const {
  const exec::StepMachine& machine = runner_->machine();
  return graph().tasks[task].origin == Origin::observed && machine.is_open(step_) &&
         machine.index(variant_).has[task] && !machine.is_done({step_, task});
}

void StreamSteps::report(std::uint32_t task) {
  enqueueing([&] {
    device_->compute_after_caller();
    if (recording_) recording_->note_end(task);
    runner_->open(task);
    runner_->report(task);
  });
}

std::int64_t StreamSteps::end_step() {
  enqueueing([&] {
    LINERATE_CHECK(in_step_, "the end of a step that has not begun");
    const exec::StepMachine& machine = runner_->machine();
    LINERATE_CHECK(machine.executed_left() == 0,
                   doc::title_of(*plan_, graph(), machine.task(machine.first_left())) +
                       " cannot be enqueued: what it waits for was never reported");
    device_->compute_after_caller();
    device_->caller_after_compute();
    in_step_ = false;
  });
  return steady_ns();
}

void StreamSteps::drain() {
  enqueueing([&] {
    runner_->settle();
    device_->caller_after_compute();
    in_step_ = false;
  });
}

void StreamSteps::compute(const std::function<void()>& work) {
  if (failure_) refuse_after(failure_);
  device_->compute(work);
}

void StreamSteps::wait_for(exec::TaskId id) {
  enqueueing([&] {
    runner_->settle(id);
    device_->caller_after_compute();
  });
}

/// Enqueues a task's work. In PyTorch's profiler each task is a range with its title.
void StreamSteps::run(const exec::StreamWork& work) {
  RECORD_USER_SCOPE(names().titles[work.id.task]);
  if (is_communication(work.task.kind)) return exchange(work);
  operations_.find(plan_->operation_name(work.task))->second->run(work.graph, work.task);
}

/// Enqueues a collective. If it is the all-reduce of the flags, this rank's verdict on the sums is
/// written before. All other flags travel over the CPU (StepTensors::agree).
///
/// So a decoupled exchange finds out whether its sums are finite before they are gathered. After
/// the reduce-scatters each rank has its part of every sum. The flags travel before any gather. For
/// example rank 2's part of one bucket holds an infinity. Rank 2 writes 1 into the first flag, and
/// the maximum over the ranks is 1 everywhere. So all ranks take the step's means for zero.
void StreamSteps::exchange(const exec::StreamWork& work) {
  const doc::Task& task = work.task;
  memory_.fill(task.first);
  const at::Tensor& array = memory_.values(task.first);
  const std::string& plain = names().titles[work.id.task];
  const std::string title = label_.empty() ? plain : label_ + ": " + plain;
  comm::TensorGroup& group = group_of(task);
  const auto bytes = static_cast<std::int64_t>(array.nbytes());
  LINERATE_CHECK(
      task.bound ? bytes <= task.bytes : bytes == task.bytes,
      fmt::format("{}: the Plan says {} bytes, the payload has {}", title, task.bytes, bytes));
  switch (task.kind) {
    case TaskKind::all_reduce:
      if (work.graph.payloads[to_index(task.first)].content == doc::Content::flags &&
          !sums_.empty())
        array.select(0, 0).copy_(any_infinite(std::exchange(sums_, {})));
      return group.all_reduce(array, exec::reduction_of(*plan_, task), title);
    case TaskKind::reduce_scatter: {
      group.reduce_scatter(array, exec::reduction_of(*plan_, task), title);
      const std::int64_t block = array.numel() / group.size();
      if (checks_sums_) sums_.push_back(array.narrow(0, group.rank() * block, block));
      return;
    }
    case TaskKind::all_gather:
      LINERATE_CHECK(sums_.empty(), title + " begins before the step's flags are known");
      return group.all_gather(array, title);
    case TaskKind::all_gather_v:
      return gather_counted(work, array, title);
    case TaskKind::all_to_all:
      return group.all_to_all(array, memory_.values(task.last), title);
    case TaskKind::broadcast:
      return group.broadcast(array, task.root, title);
    default:
      throw InternalError(title + " is no collective");
  }
}

/// Gathers from every rank's block as many bytes as the largest part has, because a device's
/// gathers move equal blocks. The runner has let the host wait for the sizes. For example three
/// blocks of 100 bytes hold 40, 10 and 25 bytes. Each rank copies 40 bytes of its block into a
/// packed array. Then 3 x 40 bytes are gathered and copied back into the blocks.
void StreamSteps::gather_counted(const exec::StreamWork& work, const at::Tensor& room,
                                 const std::string& title) {
  const at::Tensor counts = memory_.values(exec::counts_of(work.graph, work.task.first)).cpu();
  comm::TensorGroup& group = group_of(work.task);
  const std::int64_t block = room.numel() / group.size();
  const auto* const first = counts.const_data_ptr<std::int64_t>();
  const std::int64_t most = *std::max_element(first, first + counts.numel());
  if (*std::min_element(first, first + counts.numel()) < 0 || most > block)
    throw CommError(
        fmt::format("{}: a rank has {} bytes, expected 0 to {}: what was exchanged is "
                    "damaged",
                    title, most, block));
  if (most == block) return group.all_gather(room, title);
  const at::Tensor parts = room.view({group.size(), block}).narrow(1, 0, most);
  at::Tensor packed = at::empty({group.size(), most}, room.options());
  packed.select(0, group.rank()).copy_(parts.select(0, group.rank()));
  group.all_gather(packed.view({-1}), title);
  parts.copy_(packed);
}

// Times work on a model's device, as the mean over ranks, for the probes of codecs and of K-FAC's
// work. QueueTimer does the timing. While it enqueues the timed work, the device multiplies
// matrices (filler()), so that the host's launches do not count.

namespace {

/// Rounds on a device and on a processor, whose times repeat well and take long.
constexpr int kTimedRounds = 5, kTimedRoundsOfProcessors = 3;

/// One product of matrices, 17 GFlop: 0.3 ms on an H100.
std::function<void()> filler(c10::Device device) {
  if (device.is_cpu()) return {};
  constexpr std::int64_t kRows = 2048;
  const at::Tensor x = at::zeros({kRows, kRows}, at::TensorOptions().device(device));
  return [x, product = at::zeros_like(x)]() mutable { at::mm_out(product, x, x); };
}

/// A timer for the device. A device that does not work shows it at its first use, which is here.
exec::QueueTimer working_timer(c10::Device device) {
  try {
    return {clock_of_current_stream(device), filler(device)};
  } catch (const c10::Error& e) {
    throw DeviceError(
        fmt::format("device {}: expected one that computes, found: {}; check its driver, and "
                    "whether this PyTorch was built for it",
                    device.str(), e.what_without_backtrace()));
  }
}

}  // namespace

TimedQueue::TimedQueue(c10::Device device) : TimedQueue(device, working_timer(device)) {}

TimedQueue::TimedQueue(c10::Device device, exec::QueueTimer timer)
    : device_(device), timer_(std::move(timer)) {
  if (device.is_cpu()) as_device_.emplace();
}

std::string TimedQueue::type() const { return type_name(device_); }

std::vector<exec::CallTimes> TimedQueue::time(comm::Communicator& communicator,
                                              const std::vector<exec::QueuedCalls>& work) {
  communicator.barrier("work of a device")->wait();
  std::vector<exec::CallTimes> found =
      timer_.time(work, timer_.is_immediate() ? kTimedRoundsOfProcessors : kTimedRounds);
  std::vector<double> of_all;
  for (const exec::CallTimes& one : found)
    of_all.insert(of_all.end(), {one.device_s, one.host_s, one.was_queued ? 1.0 : 0.0});
  calibrate::mean_over_ranks(communicator, of_all);
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i] = {of_all[3 * i], of_all[3 * i + 1], of_all[3 * i + 2] == 1};
  return found;
}

// Turns the moments of one measured step into the times that replan works with. resolve() replaces
// the numbers of marks by times, once the device has passed them. times_of() takes out of the times
// all that another plan would place elsewhere.

namespace {

/// The forward, factor and inverse times of each layer, from when its factors were computed in a
/// step of so many blocks.
///
/// A layer's forward pass lasts from the end of its factor A to the beginning of the next layer's
/// A. The last layer's lasts until the first gradient of an output. For example A of layer 1 is
/// computed from 0 to 2 ms, and A of layer 2 from 7 to 8 ms. The first G begins at 12 ms. Then the
/// forward passes take 5 and 4 ms.
///
/// Factors that were inverted together share their time equally.
CurvatureTimes curvature_times(const MeasuredStep& step, std::size_t blocks) {
  // By factor, in nanoseconds: when its first use began, and how long all uses took.
  std::vector<std::int64_t> began(2 * blocks, -1), took(2 * blocks, 0);
  for (const FactorSpan& span : step.factors) {
    std::int64_t& first = began.at(to_index(span.factor));
    first = first < 0 ? span.start_ns : std::min(first, span.start_ns);
    took[to_index(span.factor)] += span.end_ns - span.start_ns;
  }
  std::int64_t first_gradient = -1;
  std::vector<std::size_t> inputs;  // factors A that were computed, in order of time
  for (std::size_t f = 0; f < 2 * blocks; ++f) {
    if (began[f] < 0) continue;
    if (doc::side_of_factor(static_cast<std::int32_t>(f)) == doc::FactorSide::a)
      inputs.push_back(f);
    else if (first_gradient < 0 || began[f] < first_gradient)
      first_gradient = began[f];
  }
  std::ranges::sort(inputs, [&](std::size_t x, std::size_t y) { return began[x] < began[y]; });
  const std::vector<double> unknown(2 * blocks, -1);
  CurvatureTimes times{std::vector<double>(blocks, -1), unknown, unknown};
  for (const TimedInverses& some : step.inverses)
    for (const std::int32_t factor : some.factors)
      times.inverse_s[to_index(factor)] =
          some.took.seconds() / static_cast<double>(some.factors.size());
  for (std::size_t f = 0; f < 2 * blocks; ++f)
    if (began[f] >= 0) times.factor_s[f] = Span{0, took[f]}.seconds();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t a = inputs[i];
    const std::int64_t end = i + 1 < inputs.size() ? began[inputs[i + 1]] : first_gradient;
    if (end < 0) continue;
    // A layer that is used again later has its other uses' time in `took`.
    times.forward_s[to_index(doc::block_of_factor(static_cast<std::int32_t>(a)))] =
        std::max(Span{began[a] + took[a], end}.seconds(), 0.0);
  }
  return times;
}

/// The seconds that factors computed in [from_ns, until_ns) took.
double factors_between_s(std::span<const FactorSpan> factors, std::int64_t from_ns,
                         std::int64_t until_ns) {
  Span all;
  for (const FactorSpan& span : factors)
    if (span.start_ns >= from_ns && span.start_ns < until_ns)
      all.end_ns += span.end_ns - span.start_ns;
  return all.seconds();
}

}  // namespace

void resolve(MeasuredStep& step, std::span<const std::int64_t> times_ns) {
  const auto put = [&](std::int64_t& moment) {
    if (moment >= 0) moment = times_ns[to_index(moment)];
  };
  for (std::int64_t* const moment : {&step.begin, &step.first_gradient, &step.end}) put(*moment);
  for (std::int64_t& moment : step.gradients) put(moment);
  for (Span& span : step.held) put(span.start_ns), put(span.end_ns);
  for (FactorSpan& span : step.factors) put(span.start_ns), put(span.end_ns);
  for (TimedInverses& some : step.inverses) put(some.took.start_ns), put(some.took.end_ns);
}

/// Takes out of the times what another plan would move. Ready times lose the factors that were
/// computed before them, since the planner has those as tasks of their own. The time before the
/// first gradient loses the waits for means of the step before.
///
/// An example in ms. The step begins at 0 and waits from 1 to 3 for a mean. Its first gradient
/// comes at 10 and its last at 20, and from 12 to 15 it computes a factor. Then `before_s` is 8 ms,
/// and the last gradient is ready 7 ms after the first.
StepTimes times_of(const MeasuredStep& step, std::size_t blocks) {
  StepTimes times;
  times.update = step.update;
  const bool has_factors = blocks > 0 && step.update.factors;
  const std::int64_t first = step.first_gradient;
  for (const std::int64_t ready : step.gradients) {
    double ready_s = ready < 0 ? -1 : Span{first, ready}.seconds();
    if (ready >= 0 && has_factors)
      ready_s = std::max(0.0, ready_s - factors_between_s(step.factors, first, ready));
    times.ready_s.push_back(ready_s);
  }
  if (step.begin >= 0) times.step_s = Span{step.begin, step.end}.seconds();
  if (step.begin >= 0 && first >= 0) {
    times.before_s = Span{step.begin, first}.seconds();
    for (const Span& span : step.held) times.before_s -= span.seconds();
    times.before_s = std::max(times.before_s, 0.0);
  }
  if (has_factors) times.curvature = curvature_times(step, blocks);
  return times;
}

}  // namespace linerate::torch_adapter
