// Training steps on the device where the parameters lie: what a Runner does, enqueued. Private to
// torch_adapter.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/exec/streams/stream_runner.hpp"
#include "linerate/exec/streams/stream_times.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/options.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"
#include "linerate/torch_adapter/run_planner.hpp"
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

namespace linerate::torch_adapter {

/// StepRunner on a device, for Plans without timers. Operations are called when their work is to be
/// enqueued. The host waits for the device only in a gather of parts whose sizes ranks tell each
/// other, and for what stream_program.hpp names. When Runner would sleep until a task is done, here
/// the stream that the caller computes in waits for the task.
///
/// Thread safety: one call at a time, from any thread.
class StreamSteps final : public exec::StepRunner {
 public:
  /// `communicator` and `memory` outlive this object. Plans are compared over the communicator.
  /// Payloads travel in `group`, which has the same ranks in the same order, and in parts of it.
  /// `recorder` may be null and outlives this object, too; it is told what the device took for each
  /// task.
  StreamSteps(comm::Communicator& communicator, PayloadMemory& memory, c10::Device device,
              std::unique_ptr<comm::TensorGroup> group, exec::Recorder* recorder);
  ~StreamSteps() override;

  void set_operation(const std::string& name, exec::Operation& operation) override;
  void set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step) override;
  void begin_variant(std::string_view variant, const std::string& label) override;
  void report(std::uint32_t task) override;
  /// Does nothing: the host has no times of a device's factors.
  void record_factor(std::int32_t, std::int64_t, std::int64_t) override {}

  std::int64_t end_step() override;
  void drain() override;
  /// Runs `work` in the stream that the Plan computes in, whatever the caller's stream is.
  void compute(const std::function<void()>& work) override;
  void wait_for(exec::TaskId id) override;
  bool is_done(exec::TaskId id) const override { return runner_->is_settled(id); }
  /// Does nothing: every call has submitted all that it may.
  void wait_idle() override {}
  exec::TaskId current(std::uint32_t task) const override { return {step_, task}; }
  bool in_step() const override { return in_step_; }
  std::int64_t moment() override;
  const doc::TaskGraph& graph() const override;

  /// Whether in the next steps the flags of a decoupled exchange tell if a sum is not finite.
  void check_sums(bool yes) { checks_sums_ = yes; }

  /// From now on moment() counts by the device; if not `yes`, it is the steady clock's. Between
  /// steps. Waits for the device when measuring begins.
  void measure(bool yes);
  bool measures() const { return moments_ != nullptr; }
  /// The times of the device's moments in ns, by number; waits for them. Later moments are numbered
  /// anew.
  std::vector<std::int64_t> read_moments();
  comm::TensorGroup& group() { return *group_; }
  c10::Device device() const { return lies_on_; }

  /// How often the host has waited for the device since the step began.
  std::int64_t host_waits() const { return runner_->counts().host_waits - waited_before_; }

 private:
  template <typename Act>
  void enqueueing(Act&& act);
  void begin_moments();
  void make_parts();
  comm::TensorGroup& group_of(const doc::Task& task) const;
  void check_executable(const doc::TaskGraph& graph, const doc::Task& task) const;
  const exec::VariantNames& names() const override { return names_[to_index(variant_)]; }
  bool is_left(std::uint32_t task) const override;
  void run(const exec::StreamWork& work);
  void exchange(const exec::StreamWork& work);
  void gather_counted(const exec::StreamWork& work, const at::Tensor& room,
                      const std::string& title);

  comm::Communicator& communicator_;
  PayloadMemory& memory_;
  const c10::Device lies_on_;
  std::unique_ptr<comm::TensorGroup> group_;
  /// Process groups of this Plan and those before, by the parts of a Plan's group; null: this rank
  /// is in none of the parts.
  std::map<std::vector<std::vector<std::int32_t>>, std::unique_ptr<comm::TensorGroup>> parts_;
  exec::Recorder* const recorder_;
  std::map<std::string, exec::Operation*, std::less<>> operations_;
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<exec::VariantNames> names_;
  std::unique_ptr<TensorDevice> device_;
  std::shared_ptr<TensorClock> clock_;  // null: nothing is recorded
  std::shared_ptr<exec::StreamTimes> times_;
  std::optional<exec::StepRecording> recording_;
  std::shared_ptr<TensorClock> measuring_clock_;
  std::shared_ptr<exec::StreamTimes> moments_;  // null: nothing is measured
  std::optional<exec::StreamRunner> runner_;
  std::int64_t step_ = -1;  // of runner_
  std::int32_t variant_ = 0;
  std::string label_;
  bool checks_sums_ = false;
  /// This rank's parts of this step's sums, [n / ranks] of any type, until the flags travel.
  std::vector<at::Tensor> sums_;
  std::int64_t waited_before_ = 0;
  bool in_step_ = false;
  std::exception_ptr failure_;
  int unwinding_ = std::uncaught_exceptions();
};

// A device's queue for work whose time is to be measured. Private to torch_adapter.

/// The calling thread's current stream, in which operators enqueue, with a timer. If the device is
/// the CPU, its tensors are computed on as a device's are while this object lives (CpuAsDevice).
class TimedQueue {
 public:
  /// Throws DeviceError if the device does not work.
  explicit TimedQueue(c10::Device device);
  /// `timer`: of that device's queue.
  TimedQueue(c10::Device device, exec::QueueTimer timer);

  c10::Device device() const { return device_; }
  /// "cuda"
  std::string type() const;
  /// How often work should be enqueued in a row: several times, unless it is done at once.
  int calls_in_a_row() const { return timer_.is_immediate() ? 1 : 8; }
  /// Times the work on all ranks at once. Returns medians of rounds, means over ranks. Work counts
  /// as queued if it was on every rank. Collective.
  std::vector<exec::CallTimes> time(comm::Communicator& communicator,
                                    const std::vector<exec::QueuedCalls>& work);

 private:
  std::optional<CpuAsDevice> as_device_;
  c10::Device device_;
  exec::QueueTimer timer_;
};

// The times of one step of this rank, for planners: first moments as they came, later the times
// between them. Private to torch_adapter.

/// Factors whose inverses were computed together, in this time.
struct TimedInverses {
  std::vector<std::int32_t> factors;
  Span took;
};

/// Moments are those of exec::StepRunner::moment(); -1: there was none.
struct MeasuredStep {
  std::int64_t begin = -1;  // the end of the step before
  std::int64_t first_gradient = -1, end = -1;
  std::vector<std::int64_t> gradients = {};  // by parameter: its last
  std::vector<Span> held = {};  // before the first gradient: waits for means of the step before
  std::vector<FactorSpan> factors = {};  // of K-FAC
  std::vector<TimedInverses> inverses = {};
  plan::CurvatureUpdate update = {false, false};
};

/// Replaces moments that are numbers by their times.
void resolve(MeasuredStep& step, std::span<const std::int64_t> times_ns);

/// The planner's times of a step whose moments are in ns, and of K-FAC with so many blocks; 0:
/// without it.
StepTimes times_of(const MeasuredStep& step, std::size_t blocks);

}  // namespace linerate::torch_adapter
