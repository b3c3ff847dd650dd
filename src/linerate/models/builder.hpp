// Appends nodes to a Description, working out shapes, parameters and FLOPs. Every function returns
// the new node's index.
#pragma once

#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/models/description.hpp"

namespace linerate::models {

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
  /// [T] ids -> [T, width], weight [rows, width].
  int embedding(const std::string& name, int from, std::int64_t rows, std::int64_t width);
  /// [T] -> [T, width]: row t of the table at position t.
  int position_embedding(const std::string& name, int from, std::int64_t rows, std::int64_t width);
  int constant_embedding(const std::string& name, int from, std::int64_t rows, std::int64_t width);

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
  int pointwise(Op op, std::vector<int> inputs, double flops_per_element);
  int pool(Op op, int from, Window window);
  int table(Op op, const std::string& name, int from, std::int64_t rows, std::int64_t width);
  Shape slide(const Shape& in, std::int64_t channels, const Window& window,
              const std::string& where) const;

  Description description_;
};

}  // namespace linerate::models
