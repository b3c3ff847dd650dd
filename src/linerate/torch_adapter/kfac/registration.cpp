// Finds the layers of a model that K-FAC preconditions. Each module with parameters of its own
// becomes a candidate. It is taken, skipped by a name's pattern, or left to the optimizer for a
// reason, and the report has a line for each. KFAC's constructors call this once.
//
// Example: an embedding and the last linear layer share a weight, as language models do. The weight
// has one gradient from two kinds of layers, so both lines of the report get the reason, and
// neither layer is taken. Two uses of one linear module's weight are one layer, whose factors count
// both uses.
#include "linerate/torch_adapter/kfac/registration.hpp"

#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"

namespace linerate::torch_adapter {
namespace {

/// A module as it is found, before it is known whether K-FAC takes it.
struct Candidate {
  LayerSpec spec;
  std::string kind;
  std::string reason;  // why not
};

std::string_view kind_name(const LayerSpec& layer) {
  switch (layer.kind) {
    case LayerKind::linear:
      return "linear";
    case LayerKind::conv:
      return layer.weight.dim() == 3 ? "conv1d" : layer.weight.dim() == 4 ? "conv2d" : "conv3d";
    case LayerKind::embedding:
      return "embedding";
    case LayerKind::norm:
      break;
  }
  return "norm";
}

/// Fills in the tensors of the module if it is of type T.
template <typename T>
const T* take(const torch::nn::Module& module, LayerKind kind, Candidate& found) {
  const T* const typed = dynamic_cast<const T*>(&module);
  if (!typed) return nullptr;
  found.spec.kind = kind;
  found.spec.weight = typed->weight;
  found.kind = kind_name(found.spec);
  if constexpr (requires { typed->bias; }) found.spec.bias = typed->bias;
  return typed;
}

/// A convolution whose module is of type T.
template <typename T>
bool take_convolution(const torch::nn::Module& module, Candidate& found) {
  const T* const conv = take<T>(module, LayerKind::conv, found);
  if (conv) found.spec.groups = static_cast<int>(conv->options.groups());
  return conv != nullptr;
}

Candidate candidate(const std::string& name, torch::nn::Module& module) {
  Candidate found{{.name = name}, module.name(), ""};
  found.spec.trains = [&module] { return module.is_training(); };
  using namespace torch::nn;
  if (take<LinearImpl>(module, LayerKind::linear, found)) return found;
  if (take_convolution<Conv1dImpl>(module, found) || take_convolution<Conv2dImpl>(module, found) ||
      take_convolution<Conv3dImpl>(module, found))
    return found;
  if (const auto* embedding = take<EmbeddingImpl>(module, LayerKind::embedding, found)) {
    if (embedding->options.sparse()) found.reason = "its gradients are sparse";
    if (embedding->options.scale_grad_by_freq()) found.reason = "it scales gradients by frequency";
    return found;
  }
  if (take<LayerNormImpl>(module, LayerKind::norm, found) ||
      take<BatchNorm1dImpl>(module, LayerKind::norm, found) ||
      take<BatchNorm2dImpl>(module, LayerKind::norm, found) ||
      take<BatchNorm3dImpl>(module, LayerKind::norm, found))
    return found;
  found.reason = "no factors are known for this type of layer";
  return found;
}

/// The dimension of the layer's largest factor, as a plan counts it.
std::int64_t largest_of(const LayerSpec& spec) {
  const CurvatureBlock::Shape shape = block_shape(spec);
  return doc::largest_dimension({.kind = shape.kind, .a = shape.a, .g = shape.g});
}

std::string refusal(const Candidate& c, const KfacOptions& options) {
  if (!c.reason.empty()) return c.reason;
  const LayerSpec& spec = c.spec;
  if (!spec.weight.requires_grad()) return "its weight is frozen";
  const auto type = spec.weight.scalar_type();
  if (!at::isFloatingType(type)) return "its weight is not of a real floating-point type";
  if (spec.kind == LayerKind::conv && spec.weight.dim() == 5 &&
      options.shared_positions == SharedPositions::reduce)
    return "shared_positions = reduce is not known for three dimensions";
  const CurvatureBlock::Shape shape = block_shape(spec);
  if (shape.kind == BlockKind::unit_wise && !options.norms) return "norms are left out";
  if (shape.kind == BlockKind::embedding && !options.embeddings) return "embeddings are left out";
  if (const std::int64_t largest = largest_of(spec); largest > options.largest_factor)
    return fmt::format("a factor of {0} x {0} is larger than the largest allowed, {1}", largest,
                       options.largest_factor);
  return "";
}

class Builder {
 public:
  explicit Builder(const KfacOptions& options) : options_(options) {}

  /// Decides what becomes of a module: taken, skipped by name, or left to the optimizer for a
  /// reason. The report has a line for each.
  void add(Candidate c) {
    if (c.spec.bias.defined() && !c.spec.bias.requires_grad()) c.spec.bias.reset();
    RegisteredLayer line{.name = c.spec.name, .kind = c.kind};
    line.reason = refusal(c, options_);
    const bool named = std::any_of(
        options_.skip.begin(), options_.skip.end(),
        [&](const std::string& pattern) { return matches_pattern(c.spec.name, pattern); });
    if (named) line.reason = "skipped by name";
    if (options_.all_layers && !named && !line.reason.empty())
      throw UsageError(
          fmt::format("K-FAC: layer \"{}\" ({}) would be left to the first-order optimizer, "
                      "because {}; name it in `skip`, or unset all_layers",
                      c.spec.name, c.kind, line.reason));
    if (line.reason.empty())
      take(c, line);
    else if (!named && left_for_size(c))
      line.too_large = largest_of(c.spec);
    result_.report.push_back(line);
  }

  Registration finish() { return std::move(result_); }

 private:
  /// Whether the layer is left out for its size alone.
  bool left_for_size(const Candidate& c) const {
    KfacOptions any_size = options_;
    any_size.largest_factor = std::numeric_limits<std::int64_t>::max();
    return refusal(c, any_size).empty();
  }
  // Modules that share a weight count as one layer if they use it alike. If they do not, neither is
  // preconditioned.
  void take(const Candidate& c, RegisteredLayer& line) {
    for (const at::Tensor& tensor : {c.spec.weight, c.spec.bias})
      if (tensor.defined() && tensor.is_meta())
        throw UsageError(
            fmt::format("K-FAC: layer \"{}\": its {} lies on meta, expected memory; move "
                        "the model to its device before, or name the layer in `skip`",
                        c.spec.name, tensor.is_same(c.spec.weight) ? "weight" : "bias"));
    const CurvatureBlock::Shape shape = block_shape(c.spec);
    line.a = shape.a;
    line.g = shape.g;
    line.groups = shape.groups;
    const auto [known, fresh] =
        by_weight_.try_emplace(c.spec.weight.unsafeGetTensorImpl(), result_.layers.size());
    if (fresh) {
      result_.layers.push_back(c.spec);
      return;
    }
    LayerSpec& first = result_.layers[known->second];
    if (first.kind == c.spec.kind && first.bias.is_same(c.spec.bias) &&
        first.groups == c.spec.groups && first.transposed == c.spec.transposed) {
      line.reason =
          fmt::format("shares its weight with \"{}\", whose factors count its uses", first.name);
      return;
    }
    // The weight has one gradient from two kinds of layers, and the factors of neither describe it.
    line.reason =
        fmt::format("shares its weight with \"{}\", a {} layer{}", first.name, kind_name(first),
                    first.kind == c.spec.kind ? " with another bias" : "");
    for (RegisteredLayer& other : result_.report)
      if (other.name == first.name)
        other.reason = fmt::format("shares its weight with \"{}\", a {} layer", c.spec.name,
                                   kind_name(c.spec));
    result_.layers.erase(result_.layers.begin() + static_cast<std::ptrdiff_t>(known->second));
    by_weight_.clear();
    for (std::size_t i = 0; i < result_.layers.size(); ++i)
      by_weight_[result_.layers[i].weight.unsafeGetTensorImpl()] = i;
  }

  const KfacOptions& options_;
  Registration result_;
  std::unordered_map<const void*, std::size_t> by_weight_;
};

bool has_parameters(const torch::nn::Module& module) {
  const auto own = module.named_parameters(/*recurse=*/false);
  return std::any_of(own.begin(), own.end(), [](const auto& p) { return p.value().defined(); });
}

}  // namespace

/// `*` stands for any characters, `?` for one. Example: "layer*.norm" matches "layer12.norm".
bool matches_pattern(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*')
    return matches_pattern(name, pattern.substr(1)) ||
           (!name.empty() && matches_pattern(name.substr(1), pattern));
  return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) &&
         matches_pattern(name.substr(1), pattern.substr(1));
}

Registration register_layers(torch::nn::Module& model, const KfacOptions& options) {
  Builder builder(options);
  if (has_parameters(model)) builder.add(candidate("(model)", model));
  // The list leaves out the model itself, which may live on the stack and then has no shared_ptr.
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (has_parameters(*item.value())) builder.add(candidate(item.key(), *item.value()));
  return builder.finish();
}

Registration register_layers(const std::vector<LayerSpec>& layers, const KfacOptions& options) {
  Builder builder(options);
  for (const LayerSpec& layer : layers)
    builder.add({layer, std::string(kind_name(layer)), layer.refusal});
  return builder.finish();
}

}  // namespace linerate::torch_adapter
