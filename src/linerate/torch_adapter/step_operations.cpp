#include "linerate/torch_adapter/step_operations.hpp"

#include <c10/core/GradMode.h>

#include <cstring>

#include "linerate/core/clock.hpp"

namespace linerate::torch_adapter {
namespace {

class Function : public exec::Operation {
 public:
  using Run = std::function<void(const doc::TaskGraph&, const doc::Task&)>;
  explicit Function(Run run) : run_(std::move(run)) {}
  void run(const doc::TaskGraph& graph, const doc::Task& task) override {
    const c10::NoGradGuard no_grad;  // a worker's thread has a mode of its own
    run_(graph, task);
  }

 private:
  Run run_;
};

const doc::Payload& payload_of(const doc::TaskGraph& graph, const doc::Task& task) {
  return graph.payloads[static_cast<std::size_t>(task.first)];
}

}  // namespace

StepTensors::StepTensors(std::vector<at::Tensor> parameters, std::vector<at::Tensor> buffers,
                         GradientCount& count, PayloadMemory& memory)
    : parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      count_(count),
      memory_(memory),
      before_(parameters_.size()) {}

void StepTensors::set_order(const std::vector<std::int32_t>& order) {
  order_ = order;
  position_of_.assign(order.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i)
    position_of_[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
}

std::vector<at::Tensor> StepTensors::parameters_in_order() const {
  std::vector<at::Tensor> tensors;
  for (const std::int32_t p : order_) tensors.push_back(parameters_[static_cast<std::size_t>(p)]);
  return tensors;
}

std::int64_t StepTensors::buffer_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& b : buffers_) bytes += static_cast<std::int64_t>(b.nbytes());
  return bytes;
}

void StepTensors::begin_step(int ranks) {
  equal_share_ = 1.0 / ranks;
  weighted_ = false;
  copy_s_ = 0;
  unused_here_ = unused_everywhere_ = 0;
}

void StepTensors::set_samples(std::int64_t samples) {
  weighted_ = true;
  samples_ = static_cast<double>(samples);
  memory_.only(doc::Content::samples).fill_(samples_);
}

void StepTensors::register_with(exec::Runner& runner) {
  const auto add = [&](const std::string& name, Function::Run run) {
    operations_.push_back(std::make_unique<Function>(std::move(run)));
    runner.set_operation(name, *operations_.back());
  };
  add("scale", [this](const doc::TaskGraph&, const doc::Task& t) { collect(t.first); });
  add("cast", [this](const doc::TaskGraph&, const doc::Task& t) {
    if (t.kind == doc::TaskKind::encode)
      memory_.encode(t.first);
    else
      memory_.decode(t.first);
  });
  add("pack", [this](const doc::TaskGraph& g, const doc::Task& t) { pack(payload_of(g, t)); });
  add("unpack", [this](const doc::TaskGraph& g, const doc::Task& t) { unpack(payload_of(g, t)); });
}

/// Mean over ranks, or over all samples: the sum has arrived before the first gradient is scaled.
double StepTensors::scale() {
  if (!weighted_) return equal_share_;
  const double all = *memory_.only(doc::Content::samples).const_data_ptr<double>();
  return all > 0 ? samples_ / all : 0.0;
}

/// Puts .grad into its bucket, where it stays: .grad becomes a view of the bucket.
void StepTensors::collect(std::int32_t position) {
  const std::int64_t start = steady_ns();
  const auto p = static_cast<std::size_t>(order_[static_cast<std::size_t>(position)]);
  at::Tensor& grad = parameters_[p].mutable_grad();
  const bool used = count_[p].used;
  if (!grad.defined()) {
    memory_.fill_zeros(position);
  } else {
    if (!used) before_[p] = memory_.is_view(position, grad) ? grad.clone() : grad;
    memory_.fill(position, grad, scale());
    // Now, not at the end: autograd's own tensor is freed while it is warm and serves the next
    // layer.
    if (used && !memory_.is_view(position, grad)) grad = memory_.view(position);
  }
  copy_s_ += static_cast<double>(steady_ns() - start) * 1e-9;
}

void StepTensors::pack(const doc::Payload& payload) {
  auto* to = static_cast<std::byte*>(memory_.only(payload.content).data_ptr());
  if (payload.content == doc::Content::flags) {
    for (std::size_t i = 0; i < order_.size(); ++i)
      to[i] = std::byte{count_[static_cast<std::size_t>(order_[i])].used};
    return;
  }
  for (const at::Tensor& buffer : buffers_) {
    if (buffer.nbytes() > 0) std::memcpy(to, buffer.data_ptr(), buffer.nbytes());
    to += buffer.nbytes();
  }
}

void StepTensors::unpack(const doc::Payload& payload) {
  if (payload.content == doc::Content::flags) return settle_unused();
  const auto* from = static_cast<const std::byte*>(memory_.only(payload.content).data_ptr());
  for (const at::Tensor& buffer : buffers_) {
    if (buffer.nbytes() > 0) std::memcpy(buffer.data_ptr(), from, buffer.nbytes());
    from += buffer.nbytes();
  }
}

/// A parameter that nobody used keeps its .grad as it was, undefined included; one that others used
/// gets the mean.
void StepTensors::settle_unused() {
  const auto* used = memory_.only(doc::Content::flags).const_data_ptr<std::uint8_t>();
  for (std::size_t p = 0; p < count_.size(); ++p) {
    if (count_[p].used) continue;
    ++unused_here_;
    const std::int32_t position = position_of_[p];
    at::Tensor& grad = parameters_[p].mutable_grad();
    if (used[position] != 0) {
      grad = memory_.view(position);
    } else {
      ++unused_everywhere_;
      if (grad.defined() && memory_.is_view(position, grad)) grad.copy_(before_[p]);
    }
    before_[p].reset();
  }
}

}  // namespace linerate::torch_adapter
