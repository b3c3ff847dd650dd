// "Input Dims" has one entry for each argument: [64, 3] for a tensor, [[4], [2, 2]] for a list of
// tensors. A scalar tensor has [], and so has an argument that is no tensor. "Input type" tells the
// last two apart.
#include "linerate/trace/kineto/tensor_arguments.hpp"

#include <array>
#include <charconv>
#include <string>
#include <system_error>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {

/// One pass over the text, because such lists stand in every operator of a trace. A shape is a list
/// that directly holds digits; its product is added when the list closes.
std::int64_t elements_of_dims(std::string_view list, int scalar_depth) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t sum = 0, product = 1, number = 0;
  bool shape = false, digits = false, any = false;
  int depth = 0;
  char before = 0;
  for (const char c : list) {
    if (c == ' ') continue;
    const char last = std::exchange(before, c);
    if (c >= '0' && c <= '9') {
      if (number > kMost / 10) return -1;
      number = number * 10 + (c - '0');
      digits = true;
      continue;
    }
    if (digits) {
      if (number != 0 && product > kMost / number) return -1;
      product *= number;
      shape = true;
      digits = false;
      number = 0;
    }
    if (c == '[') {
      product = 1;
      shape = false;
      ++depth;
    } else if (c == ']') {
      if (shape || (last == '[' && depth == scalar_depth)) {
        if (sum > kMost - product) return -1;
        sum += product;
        any = true;
      }
      shape = false;
      --depth;
    } else if (c == '-') {
      return -1;
    }
  }
  return any ? sum : -1;
}

std::pair<std::int64_t, std::int64_t> elements_of_first_two(std::string_view list) {
  constexpr int kOfTensorList = 2;
  std::array<std::int64_t, 2> found = {-1, -1};
  int depth = 0;
  std::size_t argument = 0, begin = 0;
  for (std::size_t i = 0; i < list.size() && argument < found.size(); ++i) {
    if (list[i] == '[' && ++depth == 2) begin = i;
    if (list[i] == ']' && depth-- == 2)
      found[argument++] = elements_of_dims(list.substr(begin, i + 1 - begin), kOfTensorList);
  }
  return {found[0], found[1]};
}

/// Depth 1 is the list of arguments, depth 2 the shape of a tensor. Numbers deeper than that belong
/// to a list of tensors, and are passed over.
std::vector<TensorShape> shapes_of_first(std::string_view list, std::size_t most) {
  std::vector<TensorShape> shapes;
  int depth = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' && ++depth == 2) {
      if (shapes.size() == most) break;
      shapes.emplace_back();
    }
    if (list[i] == ']') --depth;
    const bool is_number = list[i] == '-' || (list[i] >= '0' && list[i] <= '9');
    if (depth != 2 || !is_number) continue;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(&list[i], list.data() + list.size(), number);
    if (error != std::errc() || number < 0) return {};
    shapes.back().push_back(number);
    i = to_index(end - list.data()) - 1;
  }
  return shapes;
}

std::int64_t elements_of(const TensorShape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t elements = 1;
  for (const std::int64_t n : shape) {
    if (n > 0 && elements > kMost / n) return -1;
    elements *= n;
  }
  return elements;
}

bool is_one_scalar(std::string_view dims, std::string_view types) {
  std::string brackets;
  for (const char c : dims)
    if (c != ' ') brackets += c;
  return brackets == "[[]]" && first_element_type(types).bytes > 0;
}

TypeFound first_element_type(std::string_view list) {
  for (std::size_t at = 0;;) {
    const std::size_t begin = list.find('"', at);
    if (begin == std::string_view::npos) return {};
    const std::size_t end = list.find('"', begin + 1);
    if (end == std::string_view::npos) return {};
    const std::string_view name = list.substr(begin + 1, end - begin - 1);
    if (const int bytes = element_bytes_of(name); bytes > 0) return {bytes, name};
    at = end + 1;
  }
}

}  // namespace linerate::trace
