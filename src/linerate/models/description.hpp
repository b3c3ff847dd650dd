// What a network is, without any tensor: its layers in forward order, their parameters, shapes and
// work. The workload of a model and the LibTorch module that trains it are both built from this one
// table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace linerate::models {

/// Without the batch dimension: {C, H, W} of images, {N} of vectors, {T} of token ids, {T, D} of
/// token features.
using Shape = std::vector<std::int64_t>;

std::int64_t elements_of(const Shape& shape);
/// "3x224x224".
std::string to_text(const Shape& shape);
/// Reads "3x224x224" or "128". Throws UsageError.
Shape parse_shape(const std::string& text);

enum class Op : std::uint8_t {
  input,
  conv2d,
  linear,
  batch_norm,
  layer_norm,
  embedding,
  position_embedding,
  constant_embedding,
  tied_linear,  // multiplies by the transposed weight of an earlier embedding; brings no parameter
                // of its own
  relu,
  gelu,
  tanh,
  max_pool,
  avg_pool,
  global_avg_pool,
  flatten,
  add,
  concat,
  dropout,
  attention,   // softmax(q k^T / sqrt(d)) v over heads; one input [T, 3 D] or three of [T, D]
  first_token  // [T, D] -> [D]
};
std::string name_of(Op op);

/// Sliding window of a convolution or pooling.
struct Window {
  std::int64_t height = 1, width = 1;
  std::int64_t stride = 1;
  std::int64_t pad_height = 0, pad_width = 0;
};
/// Square window that keeps the size at stride 1.
constexpr Window same(std::int64_t size, std::int64_t stride = 1) {
  return {size, size, stride, size / 2, size / 2};
}
/// Square window without padding.
constexpr Window valid(std::int64_t size, std::int64_t stride = 1) {
  return {size, size, stride, 0, 0};
}

/// A parameter or buffer of a node: "weight" and its shape as LibTorch stores it.
struct TensorSpec {
  std::string name{};
  Shape shape{};
};

/// One operation. Its inputs are earlier nodes; node 0 is the model's input.
struct Node {
  Op op = Op::input;
  std::string name{};  // module path ("layer1.0.conv1") of nodes with parameters, else empty
  std::vector<int> inputs{};
  Window window{};
  std::int64_t heads = 0;  // attention
  bool causal = false;     // attention
  double rate = 0;         // dropout
  double epsilon = 1e-5;   // normalisations
  int tied = -1;           // tied_linear: node of the embedding
  std::vector<TensorSpec> parameters{};
  std::vector<TensorSpec> buffers{};  // f32, except "num_batches_tracked" (i64)
  Shape output{};
  double flops = 0;  // forward, per sample; a multiply-add is 2
};

enum class Initialisation : std::uint8_t { he, normal_002 };

struct Description {
  std::string name{};
  Shape input{};
  std::int64_t vocabulary = 0;  // of token models; 0: images
  std::int64_t classes = 0;     // width of the last dimension of the output
  Initialisation initialisation = Initialisation::he;
  std::vector<Node> nodes;  // the last is the output

  bool tokens() const { return vocabulary > 0; }
  const Shape& output() const { return nodes.back().output; }
  std::int64_t parameter_elements() const;
  std::int64_t buffer_bytes() const;
  double flops() const;
};

}  // namespace linerate::models
