#include "linerate/torch_adapter/weight_gate.hpp"

#include "linerate/torch_adapter/weight_table.hpp"

namespace linerate::torch_adapter {
namespace {

using BeforeUse = std::function<void(std::size_t)>;

struct GatedWeight {
  std::shared_ptr<const BeforeUse> before_use;
  std::size_t index = 0;
};

std::unique_ptr<at::ObserverContext> open_gate(const at::RecordFunction& fn);

WeightTable<GatedWeight>& gated_weights() {
  static auto* const whole = new WeightTable<GatedWeight>(  // outlives statics that hold models
      at::RecordFunctionCallback(open_gate).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  return *whole;
}

std::unique_ptr<at::ObserverContext> open_gate(const at::RecordFunction& fn) {
  for (const GatedWeight& watched : gated_weights().read_by(fn))
    (*watched.before_use)(watched.index);
  return nullptr;
}

}  // namespace

WeightGate::WeightGate(std::function<void(std::size_t)> before_use)
    : before_use_(std::make_shared<const BeforeUse>(std::move(before_use))) {}

WeightGate::~WeightGate() {
  gated_weights().remove([this](const GatedWeight& w) { return w.before_use == before_use_; });
}

void WeightGate::watch(const std::vector<at::Tensor>& weights, std::size_t index) {
  for (const at::Tensor& weight : weights) gated_weights().add(weight, {before_use_, index});
}

void WeightGate::forget(std::size_t index) {
  gated_weights().remove(
      [&](const GatedWeight& w) { return w.before_use == before_use_ && w.index == index; });
}

}  // namespace linerate::torch_adapter
