// K-FAC's state as a list of named tensors, for a checkpoint, and back. A layer's factor has up to
// three tensors: "conv1.A" with three numbers about it, "conv1.A.average", and "conv1.A.inverted".
// A name of a layer may contain dots, so names are read from their ends.
#include "linerate/kfac/kfac_report.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

constexpr std::array<std::pair<const char*, at::Tensor KfacState::Factor::*>, 2> kTensors = {
    {{".average", &KfacState::Factor::average}, {".inverted", &KfacState::Factor::inverted}}};
constexpr const char *kSuffixA = ".A", *kSuffixG = ".G";
constexpr const char *kStep = "step", *kLastRate = "rate";
// Of a rule for the damping that linerate had once.
constexpr const char *kOldDamping = "lm damping", *kOldUpdate = "lm update ";

/// [updates, damping, has_inverse]
constexpr std::int64_t kAbout = 3;

void add(Named& all, const std::string& name, const KfacState::Factor& factor) {
  all.emplace_back(name, at::tensor({static_cast<double>(factor.updates), factor.damping,
                                     factor.has_inverse ? 1.0 : 0.0},
                                    at::kDouble));
  for (const auto& [end, part] : kTensors)
    if ((factor.*part).defined()) all.emplace_back(name + end, factor.*part);
}

bool take_end(std::string& name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  name.resize(name.size() - end.size());
  return true;
}

KfacState::Layer& layer_of(KfacState& state, const std::string& name) {
  const auto known = std::find_if(state.layers.begin(), state.layers.end(),
                                  [&](const auto& layer) { return layer.name == name; });
  return known == state.layers.end() ? state.layers.emplace_back(KfacState::Layer{name, {}, {}})
                                     : *known;
}

void take(KfacState& state, std::string name, const at::Tensor& tensor, const std::string& place) {
  const std::string whole = name;
  at::Tensor KfacState::Factor::*part = nullptr;
  for (const auto& [end, of_end] : kTensors)
    if (!part && take_end(name, end)) part = of_end;
  const bool is_a = take_end(name, kSuffixA);
  if (!is_a && !take_end(name, kSuffixG))
    throw InputError(place, "K-FAC state: expected a factor, found \"" + whole + "\"");
  KfacState::Layer& layer = layer_of(state, name);
  KfacState::Factor& factor = is_a ? layer.a : layer.g;
  if (part) {
    factor.*part = tensor;
  } else if (tensor.numel() == kAbout && tensor.scalar_type() == at::kDouble) {
    const double* const values = tensor.const_data_ptr<double>();
    factor.updates = static_cast<std::int64_t>(values[0]);
    factor.damping = values[1];
    factor.has_inverse = values[2] != 0;
  } else {
    throw InputError(place, "K-FAC state: expected 3 f64 for \"" + whole + "\"");
  }
}

}  // namespace

Named to_tensors(const KfacState& state) {
  Named all = {{kStep, at::full({1}, state.step, at::kLong)}};
  if (state.rate > 0) all.emplace_back(kLastRate, at::full({1}, state.rate, at::kDouble));
  for (const KfacState::Layer& layer : state.layers) {
    add(all, layer.name + kSuffixA, layer.a);
    add(all, layer.name + kSuffixG, layer.g);
  }
  return all;
}

KfacState kfac_state_of(const Named& tensors, const std::string& place) {
  KfacState state;
  for (const auto& [name, tensor] : tensors) {
    if (name == kStep)
      state.step = tensor.item<std::int64_t>();
    else if (name == kLastRate)
      state.rate = tensor.item<double>();
    else if (name != kOldDamping && !name.starts_with(kOldUpdate))
      take(state, name, tensor, place);
  }
  return state;
}

}  // namespace linerate::torch_adapter
