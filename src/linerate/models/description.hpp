// What a network is, without any tensor: its layers in forward order, their parameters, shapes and
// work. The workload of a model and the LibTorch module that trains it are both built from this one
// table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/block.hpp"

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

// Appends nodes to a Description, working out shapes, parameters and FLOPs. Every function returns
// the new node's index.

class Builder {
 public:
  /// Throws UsageError when the input has not as many dimensions as the model wants (3: images, 1:
  /// tokens).
  Builder(std::string model, const Shape& input, std::int64_t vocabulary = 0);

  int input() const { return 0; }
  const Shape& shape(int node) const { return description_.nodes[to_index(node)].output; }

  /// [C, H, W] -> [channels, H', W'], weight [channels, C, height, width]. Throws UsageError if H'
  /// or W' would be 0.
  int conv2d(const std::string& name, int from, std::int64_t channels, Window window,
             bool bias = false);
  /// [..., N] -> [..., outputs], weight [outputs, N].
  int linear(const std::string& name, int from, std::int64_t outputs, bool bias = true);
  int tied_linear(int from, int embedding);
  int batch_norm(const std::string& name, int from, double epsilon = 1e-5);
  int layer_norm(const std::string& name, int from, double epsilon = 1e-5);
  /// [T] ids -> [T, width], weight [rows, width]. A position_embedding gives row t of the table at
  /// position t, and a constant_embedding its first row everywhere.
  int embedding(const std::string& name, int from, std::int64_t rows, std::int64_t width,
                Op op = Op::embedding);

  int relu(int from) { return pointwise(Op::relu, {from}, 1); }
  int gelu(int from) { return pointwise(Op::gelu, {from}, 8); }
  int tanh(int from) { return pointwise(Op::tanh, {from}, 8); }
  int add(int a, int b) { return pointwise(Op::add, {a, b}, 1); }
  int dropout(int from, double rate);
  int max_pool(int from, Window window) { return pool(Op::max_pool, from, window); }
  int avg_pool(int from, Window window) { return pool(Op::avg_pool, from, window); }
  /// [C, H, W] -> [C, size, size], mean over equal cells.
  int global_avg_pool(int from, std::int64_t size = 1);
  int flatten(int from);
  /// Along the channels.
  int concat(const std::vector<int>& from);
  int attention(const std::vector<int>& from, std::int64_t heads, bool causal, double dropout);
  int first_token(int from);

  Description finish(Initialisation initialisation) &&;

 private:
  int append(Node node);
  int weigh(Node node, const Shape& weight, bool bias);
  int pointwise(Op op, std::vector<int> inputs, double flops_per_element);
  int pool(Op op, int from, Window window);
  int norm(Op op, const std::string& name, int from, std::int64_t units, double epsilon);
  Shape slide(const Shape& in, std::int64_t channels, const Window& window,
              const std::string& where) const;

  Description description_;
};

// The Kronecker factors of a network's layers.

/// One block for each node with parameters, in their order, so that Block::layer counts the nodes
/// with parameters; an embedding that a later projection is tied to has none. Rows are the samples
/// times the positions that share the weight: pixels of a convolution's output, tokens. `batch` 0:
/// rows are unknown.
std::vector<doc::Block> blocks_of(const Description& model, std::int64_t batch);

}  // namespace linerate::models
