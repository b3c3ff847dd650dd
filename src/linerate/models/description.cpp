#include "linerate/models/description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::models {

std::int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string to_text(const Shape& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t n : shape) parts.push_back(std::to_string(n));
  return join(parts, "x");
}

// Refuses sizes that no sample has, so that a typo does not ask for gigabytes.
Shape parse_shape(const std::string& text) {
  const auto wrong = [&]() -> UsageError {
    return UsageError(
        "--input: expected sizes such as 3x32x32, or a sequence length such as 128, found \"" +
        text + "\"");
  };
  Shape shape;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (part.empty() || part.size() > 9 ||
        part.find_first_not_of("0123456789") != std::string::npos)
      throw wrong();
    shape.push_back(std::stoll(part));
    if (shape.back() < 1) throw wrong();
    begin = end + 1;
  }
  constexpr double kMostValues = 1e9;
  double values = 1;
  for (const std::int64_t size : shape) values *= static_cast<double>(size);
  if (values > kMostValues)
    throw UsageError(
        fmt::format("--input: expected at most {:g} values in a sample, found {:g} in {}",
                    kMostValues, values, text));
  if (shape.size() > 3) throw wrong();
  return shape;
}

std::string name_of(Op op) {
  static constexpr std::array names = {
      "input",     "conv2d",    "linear",          "batch_norm", "layer_norm", "embedding",
      "embedding", "embedding", "linear",          "relu",       "gelu",       "tanh",
      "max_pool",  "avg_pool",  "global_avg_pool", "flatten",    "add",        "concat",
      "dropout",   "attention", "first_token"};
  return names.at(to_index(op));
}

std::int64_t Description::parameter_elements() const {
  std::int64_t total = 0;
  for (const Node& node : nodes)
    for (const TensorSpec& p : node.parameters) total += elements_of(p.shape);
  return total;
}

std::int64_t Description::buffer_bytes() const {
  std::int64_t total = 0;
  for (const Node& node : nodes)
    for (const TensorSpec& b : node.buffers)
      total += elements_of(b.shape) * (b.shape.empty() ? 8 : 4);
  return total;
}

double Description::flops() const {
  double total = 0;
  for (const Node& node : nodes) total += node.flops;
  return total;
}

}  // namespace linerate::models
