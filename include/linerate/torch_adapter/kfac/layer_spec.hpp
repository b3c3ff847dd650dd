// A layer that K-FAC preconditions, as it finds it in a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace linerate::torch_adapter {

/// What its weights do; conv: of one, two or three dimensions, those of its weight.
enum class LayerKind : std::uint8_t { linear, conv, embedding, norm };

/// A layer's parameters. How it is used (stride, padding, dilation, padding index, epsilon) is read
/// from the operators that use it.
struct LayerSpec {
  std::string name;                    // that reports and errors call it
  LayerKind kind = LayerKind::linear;  // decides what its factors are
  /// linear [out, in], conv [out, in / groups, kd, kh, kw] or without kd or kd and kh, embedding
  /// [words, features], norm [units]
  at::Tensor weight = {};
  at::Tensor bias = {};  // [out], or undefined: none, or one that is not trained
  int groups = 1;        // of a convolution
  /// linear: the weight is [in, out], and inputs are multiplied with it as it is (Conv1D of Hugging
  /// Face's GPT-2).
  bool transposed = false;
  /// Whether the module is in training mode; absent: always.
  std::function<bool()> trains = {};
  /// Why its factors would not be its curvature, for the report; empty if they are.
  std::string refusal = {};
};

}  // namespace linerate::torch_adapter
