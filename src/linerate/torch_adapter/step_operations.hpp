// What the tasks of a training step do to tensors: scale, cast, pack, unpack. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <array>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/index.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/gradient_hooks.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"
#include "linerate/torch_adapter/streams/late_values.hpp"

namespace linerate::torch_adapter {

class StreamCompression;

/// One training step's tensors, as its operations see them.
///
/// Ranks exchange the .grads as they stand in finish(). Gradients that were sent earlier are looked
/// at again then, and the step's flags tell whether any has changed. .grad stays this rank's own
/// tensor until take_means().
///
/// The flags are the step's verdict. Each rank says for each parameter whether it was used. For the
/// step it says whether it refuses, has a changed model, has to send again, skips, or found an
/// infinity. The flags are combined over the ranks, so all ranks read the same verdict and act
/// alike. For example rank 0 finishes, rank 1 has one more gradient to send, and rank 2 finishes.
/// All three read `again` and start a second round.
class StepTensors {
 public:
  /// `parameters` in registration order; `buffers` are those that rank 0 sends to all. All
  /// arguments outlive this object.
  StepTensors(const std::vector<Parameter>& parameters, std::vector<at::Tensor> buffers,
              GradientCount& count, PayloadMemory& memory, const exec::Compression& compression);

  /// `order`: the parameter (registration index) at each position of the plan.
  void set_plan(std::shared_ptr<const doc::Plan> plan, const std::vector<std::int32_t>& order);
  const std::vector<std::int32_t>& order() const { return order_; }
  std::int32_t position_of(std::size_t parameter) const { return position_of_[parameter]; }
  std::vector<const Parameter*> parameters_in_order() const;
  std::int64_t buffer_bytes() const { return buffer_bytes_; }

  /// From now on payloads lie on a device, or are used as if they did: operations enqueue work and
  /// read no values. Comes before set_plan(). Then agree() exchanges the flags, and `compression`,
  /// which outlives this object, codes in place of the constructor's. `preconditions`: K-FAC keeps
  /// values that are made of a step's means.
  void enqueue_only(StreamCompression& compression, int rank, bool preconditions) {
    enqueued_ = &compression;
    rank_ = rank;
    preconditions_ = preconditions;
  }
  /// On a device: whether means that are not finite are taken for zero, because kept values
  /// (residuals, averages) would carry them on. Otherwise they pass.
  bool drops_infinite() const { return compresses() || preconditions_; }
  /// On a device, in this step: whether the means are checked for infinities.
  bool looks_for_infinite() const;
  /// Exchanges the flags over the CPU, after the step's last gradient. The flags in the Plan's
  /// payloads stay zeros, except for one. That flag tells whether a gradient was not usable, which
  /// the device alone can compute. Collective.
  void agree(comm::Communicator& communicator, const std::string& name);

  /// Begins a step, or the same one again. Gradients are weighted 1 / ranks, or by this rank's
  /// share of all samples, once those are summed.
  void begin_step(int ranks, std::optional<std::int64_t> samples);
  /// The factor by which the loss of the step's gradients was multiplied; absent: no scaler. Comes
  /// before the first of them.
  void set_loss_scale(std::optional<double> scale) { loss_scale_ = scale; }
  std::optional<double> loss_scale() const { return loss_scale_; }
  /// For a step that counts: whether any rank's scale is not that of its step before, under a
  /// compressor. All ranks answer alike.
  bool is_rescaled() const;
  /// Then: throws UsageError on every rank if ranks have different scales, because the sum of their
  /// gradients has no unit. Collective.
  void require_same_scale(comm::Communicator& communicator, const std::string& name);
  /// This rank's part of the step's verdict, until end_step().
  void refuse(std::exception_ptr why);
  const std::exception_ptr& refusal() const { return refusal_; }
  void note_change() { changed_ = true; }
  /// Sends everything again in another round. Either a layer was used once more after its
  /// statistics were sent, or sent gradients were divided by another loss scale.
  void send_again() { again_ = true; }
  void skip() { skipped_ = true; }
  bool skips() const { return skipped_; }
  void end_step();

  /// Whether any rank set this flag. Valid once the flags are unpacked.
  bool said(doc::StepFlag flag) const { return said_[to_index(flag)]; }
  /// The step counts: what arrives in the buckets is the mean.
  bool accepted() const { return accepted_; }
  /// The gradient that the optimizer sees in a step that counts: a view of the bucket. If no rank
  /// used the parameter, it is the parameter's .grad as it is, undefined included.
  const at::Tensor& mean(std::size_t parameter) const;
  /// The same before the ranks have said which parameters they use, if steps are enqueued.
  const at::Tensor& arrived(std::size_t parameter) const {
    return enqueued_ ? memory_.view(position_of_[parameter]) : mean(parameter);
  }
  /// Of a step that counts: the parameters, by name, that no rank used.
  std::set<std::string> used_nowhere() const;
  /// For a step that counts, once all means have arrived: shows them to the compressor, which may
  /// replace those that travel dense.
  void pass_dense_means(exec::Compression& compression);
  /// Whether all means of an earlier step were taken for zero, because some were not finite or a
  /// rank's gradients not usable. This becomes known later, where drops_infinite(). Each such step
  /// is told once. Throws CommError if a payload of that step was damaged.
  bool take_late_infinite();
  /// On a device, where drops_infinite(), after take_means(): whether all means of this step were
  /// taken for zero, a scalar bool tensor.
  const at::Tensor& infinite_there() const { return infinite_there_; }
  /// Of a step that counts, once all means have arrived: whether all of them are finite.
  bool means_are_finite() const;
  /// Makes every .grad its mean(), once they have arrived. Returns true if a scaler has to skip the
  /// step: it may look, and then wait for the device, if `may_wait`. Then no mean was taken.
  bool take_means(bool may_wait);
  /// On a device, for a step that counts, when all has arrived but its means: takes rank 0's
  /// buffers. Returns whether means are to be taken for zero, a scalar bool tensor; undefined: no.
  at::Tensor take_what_has_arrived();
  /// The name of a parameter whose .grad has changed after it was sent; null: none.
  const std::string* changed_after_sending() const;

  /// The operations of a training plan by name.
  void register_with(exec::StepRunner& runner);

  /// Whether the strategy compresses. Then no step counts in which some rank's gradient is not
  /// usable (exec/compression.hpp), wherever it travels.
  bool compresses() const { return step_flags_ == doc::kCompressedStepFlags; }
  double copy_s() const { return copy_s_; }
  int unused_here() const { return unused_here_; }
  int unused_everywhere() const { return unused_everywhere_; }

 private:
  /// A .grad as it was when it was sent.
  struct Sent {
    at::Tensor grad;
    std::int64_t version = 0;
  };

  const at::Tensor& scale(const doc::Task& task);
  at::Tensor share();
  void collect(const doc::Task& task);
  void add_owed(const doc::Task& task);
  void pack(const doc::TaskGraph& graph, const doc::Task& task);
  void unpack(const doc::Payload& payload);
  void say_flags();
  void hear_flags();
  at::Tensor infinite_flag(const at::Tensor& flags) const;
  void view_bytes_of_buffers(const at::Tensor& payload);
  at::Tensor settle_there(const at::Tensor& infinite);
  bool is_used_anywhere(std::size_t parameter) const {
    return flags_[to_index(position_of_[parameter])] > 0;
  }
  std::int64_t bytes_of_buffers_now() const;

  const std::vector<Parameter>& parameters_;
  std::vector<at::Tensor> buffers_;
  std::int64_t buffer_bytes_ = 0;
  /// On a device: all bytes of each buffer, and their place in the payload.
  std::vector<at::Tensor> bytes_of_buffers_, bytes_in_payload_;
  GradientCount& count_;
  PayloadMemory& memory_;
  const exec::Compression& compression_;
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<std::int32_t> order_, position_of_;
  std::vector<std::optional<Sent>> sent_;  // by parameter
  std::vector<float> flags_;               // by position, then doc::StepFlag
  std::vector<std::unique_ptr<exec::Operation>> operations_;
  StreamCompression* enqueued_ = nullptr;  // where operations enqueue what they do
  int rank_ = -1;                          // there
  bool preconditions_ = false;
  at::Tensor share_;                 // of this step, once it is known
  std::array<at::Tensor, 2> scale_;  // likewise: of means, in gradient units
  LateAnswer infinite_late_;
  at::Tensor infinite_there_;
  int ranks_ = 1;
  std::optional<double> samples_;
  std::exception_ptr refusal_;
  bool changed_ = false, again_ = false, skipped_ = false, accepted_ = false;
  std::optional<double> loss_scale_, agreed_scale_;  // of this step, of the last one that counted
  bool infinite_ = false;  // a gradient that is sent as it is; encodes look at the others
  std::size_t step_flags_ = doc::kStepFlags;
  std::array<bool, doc::kCompressedStepFlags> said_{};
  double copy_s_ = 0;
  int unused_here_ = 0, unused_everywhere_ = 0;
};

// An operation of a Plan that is a function. Private to torch_adapter.

/// Runs without autograd's recording. A worker's thread has a mode of its own, so the caller's
/// NoGradGuard does not reach it.
class OperationOf : public exec::Operation {
 public:
  using Run = std::function<void(const doc::TaskGraph&, const doc::Task&)>;
  explicit OperationOf(Run run) : run_(std::move(run)) {}
  void run(const doc::TaskGraph& graph, const doc::Task& task) override {
    const c10::NoGradGuard no_grad;
    run_(graph, task);
  }

 private:
  Run run_;
};

}  // namespace linerate::torch_adapter
