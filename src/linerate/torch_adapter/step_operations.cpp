// The Plan's operations on gradients, buffers and flags: scale, cast, pack and unpack. A runner
// calls them when their turn has come.
//
// A sent gradient is remembered by its tensor and the tensor's version counter. PyTorch raises the
// counter with each write in place, so a comparison at the step's end finds every change without
// reading a value.
#include "linerate/torch_adapter/step_operations.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/torch_adapter/stream_compression.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::StepFlag;

/// The value of StepFlag::finished on a rank whose loss scale is not that of its step before. Ranks
/// take the greatest value, so all ranks see it if one says it.
constexpr float kRescaled = 2;

const doc::Payload& payload_of(const doc::TaskGraph& graph, const doc::Task& task) {
  return graph.payloads[to_index(task.first)];
}

/// Whether a gradient is usable, as encoded gradients are checked. Gradients of other types than
/// f32 are never encoded, and only have to be finite.
bool is_usable(const at::Tensor& gradient, double scale) {
  if (gradient.scalar_type() != at::kFloat || !gradient.is_non_overlapping_and_dense())
    return at::isfinite(gradient).all().item<bool>();
  return exec::are_usable(
      {static_cast<const float*>(gradient.const_data_ptr()), to_index(gradient.numel())},
      static_cast<float>(scale));
}

/// The memory of a dense tensor.
at::Tensor bytes_in(const at::Tensor& dense) {
  at::Tensor flat = at::empty({0}, dense.options());
  flat.set_(dense.storage(), dense.storage_offset(), {dense.numel()}, {1});
  return flat.view(at::kByte);
}

}  // namespace

StepTensors::StepTensors(const std::vector<Parameter>& parameters, std::vector<at::Tensor> buffers,
                         GradientCount& count, PayloadMemory& memory,
                         const exec::Compression& compression)
    : parameters_(parameters),
      buffers_(std::move(buffers)),
      count_(count),
      memory_(memory),
      compression_(compression),
      sent_(parameters.size()) {
  buffer_bytes_ = bytes_of_buffers_now();
}

void StepTensors::set_plan(std::shared_ptr<const doc::Plan> plan,
                           const std::vector<std::int32_t>& order) {
  plan_ = std::move(plan);
  step_flags_ = plan_->gradient_shapes.empty() ? doc::kStepFlags : doc::kCompressedStepFlags;
  order_ = order;
  position_of_.assign(order.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i)
    position_of_[to_index(order[i])] = static_cast<std::int32_t>(i);
}

std::vector<const Parameter*> StepTensors::parameters_in_order() const {
  std::vector<const Parameter*> list;
  for (const std::int32_t p : order_) list.push_back(&parameters_[to_index(p)]);
  return list;
}

void StepTensors::begin_step(int ranks, std::optional<std::int64_t> samples) {
  ranks_ = ranks;
  samples_.reset();
  if (samples) {
    samples_ = static_cast<double>(*samples);
    memory_.only(doc::Content::samples).fill_(*samples_);
  }
  share_.reset();
  scale_ = {};
  copy_s_ = 0;
  unused_here_ = unused_everywhere_ = 0;
  accepted_ = changed_ = again_ = infinite_ = false;
  memory_.release();
  for (auto& sent : sent_) sent.reset();
}

void StepTensors::refuse(std::exception_ptr why) {
  if (!refusal_) refusal_ = std::move(why);
}

void StepTensors::end_step() {
  memory_.release();
  refusal_ = nullptr;
  changed_ = skipped_ = false;
  for (auto& sent : sent_) sent.reset();
}

void StepTensors::register_with(exec::StepRunner& runner) {
  const auto add = [&](const std::string& name, OperationOf::Run run) {
    operations_.push_back(std::make_unique<OperationOf>(std::move(run)));
    runner.set_operation(name, *operations_.back());
  };
  add("scale", [this](const doc::TaskGraph&, const doc::Task& t) { collect(t); });
  add("cast", [this](const doc::TaskGraph&, const doc::Task& t) {
    if (t.kind == doc::TaskKind::encode)
      memory_.encode(t.first, loss_scale_ ? std::nullopt : std::optional(ranks_), !enqueued_);
    else
      memory_.decode(t.first);
  });
  add("pack", [this](const doc::TaskGraph& g, const doc::Task& t) { pack(g, t); });
  add("unpack", [this](const doc::TaskGraph& g, const doc::Task& t) { unpack(payload_of(g, t)); });
}

/// The factor of a gradient in the sum. As a rule it is the batch's share, so that the sum is the
/// mean; the numbers of samples were summed before. Gradients that are compressed are in units of
/// the loss before a scaler, and not divided by the ranks. Their decode takes the mean over ranks
/// and multiplies by the scale again.
///
/// An example with three ranks of 10, 20 and 10 samples. Their shares are 1/4, 1/2 and 1/4. In
/// gradient units rank 1's factor is 1/2 times 3, and the decode divides the sum by 3.
///
/// A tensor, since only a device has the sum of the samples. Computed once in a step.
const at::Tensor& StepTensors::scale(const doc::Task& task) {
  const bool keeps_units = plan::is_in_gradient_units(plan_->operations[to_index(task.operation)]);
  at::Tensor& known = scale_[keeps_units ? 1 : 0];
  if (known.defined()) return known;
  const double unscaled = loss_scale_.value_or(1);
  if (!samples_)
    known = c10::scalar_to_tensor(keeps_units ? 1 / unscaled : 1.0 / ranks_);
  else
    known = keeps_units ? share().mul(ranks_).div(unscaled) : share();
  return known;
}

/// The weight of this rank's batch among those of all ranks.
at::Tensor StepTensors::share() {
  if (share_.defined()) return share_;
  const at::Tensor all = memory_.only(doc::Content::samples).select(0, 0);
  const at::Tensor mine = at::scalar_tensor(*samples_, all.options());
  share_ = at::where(all.gt(0), mine.div(all), at::scalar_tensor(0, all.options()));
  return share_;
}

/// Puts .grad, scaled, into its bucket, or notes it to be read in place or copied later. .grad
/// stays this rank's own. A later backward pass may add to it while the bucket travels, and then
/// the step's flags tell that.
void StepTensors::collect(const doc::Task& task) {
  const std::int64_t start = steady_ns();
  const std::int32_t position = task.first;
  const auto p = to_index(order_[to_index(position)]);
  at::Tensor& grad = parameters_[p].tensor.mutable_grad();
  const bool fits = grad.defined() && memory_.fits(position, grad);
  if (compresses() && !enqueued_ && fits && memory_.is_sent_as_is(position))
    infinite_ = infinite_ || !is_usable(grad, loss_scale_.value_or(1));
  if (grad.defined() && !fits) {
    if (grad.layout() == at::kStrided)
      changed_ = true;
    else
      refuse(std::make_exception_ptr(UsageError(fmt::format(
          "the gradient of \"{}\" is sparse; only dense gradients are exchanged: construct its "
          "module without the option sparse",
          parameters_[p].name))));
  }
  const at::Tensor sent = fits ? grad : at::Tensor();
  if (fits && memory_.is_view(position, grad)) grad = grad.clone();  // stays this rank's own
  if (enqueued_)
    memory_.note(position, sent, scale(task));
  else
    memory_.add(position, sent, scale(task).item<double>());
  add_owed(task);
  sent_[p] = Sent{grad, grad.defined() ? static_cast<std::int64_t>(grad._version()) : 0};
  copy_s_ += static_cast<double>(steady_ns() - start) * 1e-9;
}

/// Adds a parameter's residual to a gradient that travels dense. The residual is in gradient units
/// of the loss. So it is multiplied by the loss scale and divided by the ranks, whatever the weight
/// of this rank's batch is.
void StepTensors::add_owed(const doc::Task& task) {
  at::Tensor owed;
  if (enqueued_)
    owed = enqueued_->owed(task.first);
  else if (const std::span<const float> here = compression_.owed(task.first); !here.empty())
    owed = at::from_blob(const_cast<float*>(here.data()), {static_cast<std::int64_t>(here.size())},
                         at::kFloat);
  if (!owed.defined()) return;
  const bool keeps_units = plan::is_in_gradient_units(plan_->operations[to_index(task.operation)]);
  const double weight = keeps_units ? 1 : loss_scale_.value_or(1) / ranks_;
  enqueued_ ? memory_.note_more(task.first, owed, weight)
            : memory_.add_more(task.first, owed, weight);
}

const std::string* StepTensors::changed_after_sending() const {
  for (const std::int32_t p : order_) {
    const std::optional<Sent>& sent = sent_[to_index(p)];
    if (!sent) continue;
    const at::Tensor& now = parameters_[to_index(p)].tensor.grad();
    if (now.unsafeGetTensorImpl() != sent->grad.unsafeGetTensorImpl() ||
        (now.defined() && static_cast<std::int64_t>(now._version()) != sent->version))
      return &parameters_[to_index(p)].name;
  }
  return nullptr;
}

std::int64_t StepTensors::bytes_of_buffers_now() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& b : buffers_) bytes += static_cast<std::int64_t>(b.nbytes());
  return bytes;
}

void StepTensors::pack(const doc::TaskGraph& graph, const doc::Task& task) {
  const doc::Payload& payload = payload_of(graph, task);
  if (payload.content != doc::Content::buffers) {
    // All gradients of the step are in their buckets, so the flags hold for all.
    if (!enqueued_) {
      say_flags();
      memory_.write_flags(flags_);
    } else if (compresses()) {  // agree() tells the other flags
      infinite_flag(memory_.only(payload.content)).copy_(enqueued_->found_infinite());
    }
    return;
  }
  if (bytes_of_buffers_now() != payload.elements)
    return;  // a changed model: the step will not count
  if (enqueued_) {
    if (rank_ != 0 || buffer_bytes_ == 0) return;  // the other ranks send none
    view_bytes_of_buffers(memory_.values(task.first));
    return memory_.note_copies(task.first, bytes_in_payload_, bytes_of_buffers_);
  }
  auto* to = static_cast<std::byte*>(memory_.only(payload.content).data_ptr());
  for (const at::Tensor& buffer : buffers_) {
    if (buffer.nbytes() > 0) std::memcpy(to, buffer.const_data_ptr(), buffer.nbytes());
    to += buffer.nbytes();
  }
}

at::Tensor StepTensors::infinite_flag(const at::Tensor& flags) const {
  const auto at = static_cast<std::int64_t>(order_.size() + to_index(StepFlag::infinite));
  return flags.select(0, at);
}

/// Makes views of the buffers' bytes and of their places in the payload. They are kept until
/// buffers or payload lie elsewhere.
void StepTensors::view_bytes_of_buffers(const at::Tensor& payload) {
  std::vector<at::Tensor> used;
  for (const at::Tensor& buffer : buffers_)
    if (buffer.nbytes() > 0) used.push_back(buffer);
  const auto lies_there = [](const at::Tensor& one, const at::Tensor& other) {
    return one.const_data_ptr() == other.const_data_ptr();
  };
  if (!std::ranges::equal(used, bytes_of_buffers_, lies_there)) {
    bytes_of_buffers_.clear();
    bytes_in_payload_.clear();
    for (const at::Tensor& buffer : used) bytes_of_buffers_.push_back(bytes_in(buffer));
  }
  if (!bytes_in_payload_.empty() && lies_there(bytes_in_payload_.front(), payload)) return;
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& bytes : bytes_of_buffers_) sizes.push_back(bytes.numel());
  bytes_in_payload_ = payload.split_with_sizes(sizes);
}

void StepTensors::unpack(const doc::Payload& payload) {
  if (enqueued_) return;  // take_means() does, when the ranks have agreed on the step
  if (payload.content != doc::Content::buffers) {
    memory_.read_flags(flags_);
    return hear_flags();
  }
  if (!accepted_ || bytes_of_buffers_now() != payload.elements) return;
  const auto* from = static_cast<const std::byte*>(memory_.only(payload.content).const_data_ptr());
  for (const at::Tensor& buffer : buffers_) {
    if (buffer.nbytes() > 0) std::memcpy(buffer.data_ptr(), from, buffer.nbytes());
    from += buffer.nbytes();
  }
}

void StepTensors::agree(comm::Communicator& communicator, const std::string& name) {
  say_flags();
  communicator.all_reduce(comm::buffer(flags_), comm::Reduce::max, name)->wait();
  hear_flags();
}

void StepTensors::say_flags() {
  flags_.assign(order_.size() + step_flags_, 0);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const auto p = to_index(order_[i]);
    // A gradient that was cleared since counts as none.
    count_[p].used = count_[p].used && parameters_[p].tensor.grad().defined();
    flags_[i] = count_[p].used ? 1 : 0;
  }
  const auto say = [&](StepFlag flag, bool yes) {
    flags_[order_.size() + to_index(flag)] = yes ? 1 : 0;
  };
  const bool rescaled = compresses() && loss_scale_ != agreed_scale_;
  say(StepFlag::refused, refusal_ != nullptr);
  say(StepFlag::changed, changed_);
  say(StepFlag::again, again_ || changed_after_sending() != nullptr);
  say(StepFlag::skipped, skipped_);
  say(StepFlag::finished, !skipped_);
  if (compresses()) say(StepFlag::infinite, infinite_ || compression_.found_infinite());
  // Ranks take the greatest of what they say.
  if (rescaled && !skipped_) flags_[order_.size() + to_index(StepFlag::finished)] = kRescaled;
}

/// Reads the verdict of all ranks. This rank's own flag has to be in it; if it is missing, the
/// exchange has damaged data.
void StepTensors::hear_flags() {
  for (std::size_t f = 0; f < step_flags_; ++f) said_[f] = flags_[order_.size() + f] > 0;
  if (!said(skipped_ ? StepFlag::skipped : StepFlag::finished))
    throw CommError(
        "the step's flags came back without this rank's own, so what was exchanged is damaged");
  accepted_ = !said(StepFlag::refused) && !said(StepFlag::changed) && !said(StepFlag::again) &&
              !said(StepFlag::skipped) && !said(StepFlag::infinite);
  if (!accepted_) return;
  for (std::size_t p = 0; p < count_.size(); ++p) {
    unused_here_ += !count_[p].used;
    unused_everywhere_ += !is_used_anywhere(p);
  }
}

bool StepTensors::is_rescaled() const {
  return compresses() && flags_[order_.size() + to_index(StepFlag::finished)] >= kRescaled;
}

void StepTensors::require_same_scale(comm::Communicator& communicator, const std::string& name) {
  const std::vector<std::string> scales = comm::gather_texts(
      communicator, loss_scale_ ? fmt::format("{}", *loss_scale_) : "none", name + ": loss scale");
  for (std::size_t r = 0; r < scales.size(); ++r)
    if (scales[r] != scales[0])
      throw on_every_rank(UsageError(fmt::format(
          "{}: expected the same loss scale on every rank, found {} on rank 0 and {} on rank {}; "
          "give every rank the same scaler, or set_loss_scale(), before its backward pass",
          name, scales[0], scales[r], r)));
  agreed_scale_ = loss_scale_;
}

std::set<std::string> StepTensors::used_nowhere() const {
  std::set<std::string> names;
  if (unused_everywhere_ == 0) return names;
  for (std::size_t p = 0; p < count_.size(); ++p)
    if (!is_used_anywhere(p)) names.insert(parameters_[p].name);
  return names;
}

const at::Tensor& StepTensors::mean(std::size_t parameter) const {
  return is_used_anywhere(parameter) ? memory_.view(position_of_[parameter])
                                     : parameters_[parameter].tensor.grad();
}

bool StepTensors::means_are_finite() const {
  for (std::size_t p = 0; p < count_.size(); ++p)
    if (is_used_anywhere(p) && !at::isfinite(mean(p)).all().item<bool>()) return false;
  return true;
}

void StepTensors::pass_dense_means(exec::Compression& compression) {
  std::vector<StreamCompression::DenseMean> enqueued;
  for (std::size_t p = 0; p < count_.size(); ++p) {
    const auto position = to_index(position_of_[p]);
    const at::Tensor& mean = memory_.view(position_of_[p]);
    if (!is_used_anywhere(p) || mean.scalar_type() != at::kFloat) continue;
    const std::string& name = plan_->gradient_names[position];
    const doc::GradientShape& s = plan_->gradient_shapes.at(position);
    const compress::Shape shape{s.elements, s.rows};
    if (enqueued_)
      enqueued.push_back({name, shape, mean.view({-1})});
    else
      compression.take_dense_mean(name, shape, {mean.data_ptr<float>(), to_index(mean.numel())});
  }
  if (enqueued_) enqueued_->take_dense_means(enqueued);
}

bool StepTensors::take_late_infinite() {
  if (enqueued_ && enqueued_->was_damaged())
    throw CommError(
        "what was exchanged in an earlier step is damaged: a rank received a malformed payload; "
        "start the job again from a checkpoint");
  return infinite_late_.take().value_or(false);
}

/// On a device, enqueues the verdict on the means. All ranks have the same means and flags, and so
/// the same verdict. If a scaler asks for it next, the host has to wait anyway. So it waits here
/// and takes the step back, as the host's code does.
bool StepTensors::take_means(bool may_wait) {
  memory_.release();
  if (enqueued_) {
    at::Tensor infinite;
    if (looks_for_infinite()) infinite = memory_.is_infinite();
    if (compresses())
      infinite = infinite.logical_or(infinite_flag(memory_.only(doc::Content::flags)));
    if (drops_infinite()) memory_.drop_if(infinite);
    if (may_wait && compresses() && loss_scale_ && infinite.item<bool>()) {
      enqueued_->take_back();
      return true;
    }
    infinite_there_ = settle_there(infinite);
  }
  for (std::size_t p = 0; p < count_.size(); ++p) {
    const at::Tensor& mine = mean(p);
    at::Tensor& grad = parameters_[p].tensor.mutable_grad();
    if (grad.unsafeGetTensorImpl() != mine.unsafeGetTensorImpl()) grad = mine;
    sent_[p].reset();
  }
  return false;
}

bool StepTensors::looks_for_infinite() const {
  return enqueued_ && (drops_infinite() || enqueued_->sends_owed());
}

/// The verdict by the flags: each rank has checked its parts of the sums (StreamSteps::exchange).
at::Tensor StepTensors::take_what_has_arrived() {
  at::Tensor infinite;
  if (looks_for_infinite()) infinite = memory_.only(doc::Content::flags).select(0, 0).gt(0);
  return settle_there(infinite);
}

/// Settles the compressors and takes rank 0's buffers. Returns whether means count as zero;
/// undefined: they do not.
at::Tensor StepTensors::settle_there(const at::Tensor& infinite) {
  enqueued_->settle(infinite);
  if (rank_ != 0 && buffer_bytes_ > 0) {  // until now buffers were this rank's own
    view_bytes_of_buffers(memory_.only(doc::Content::buffers));
    at::_foreach_copy_(bytes_of_buffers_, bytes_in_payload_);
  }
  if (!drops_infinite()) return {};
  infinite_late_.ask(infinite);
  return infinite;
}

}  // namespace linerate::torch_adapter
