#include "linerate/trace/kineto/tensor_arguments.hpp"

#include <array>

#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {

std::int64_t elements_of_dims(std::string_view list) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t sum = 0, product = 1, number = 0;
  bool shape = false, digits = false, any = false;
  for (const char c : list) {
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
    } else if (c == ']' && shape) {
      if (sum > kMost - product) return -1;
      sum += product;
      any = true;
      shape = false;
    } else if (c == '-') {
      return -1;
    }
  }
  return any ? sum : -1;
}

std::pair<std::int64_t, std::int64_t> elements_of_first_two(std::string_view list) {
  std::array<std::int64_t, 2> found = {-1, -1};
  int depth = 0;
  std::size_t argument = 0, begin = 0;
  for (std::size_t i = 0; i < list.size() && argument < found.size(); ++i) {
    if (list[i] == '[' && ++depth == 2) begin = i;
    if (list[i] == ']' && depth-- == 2)
      found[argument++] = elements_of_dims(list.substr(begin, i + 1 - begin));
  }
  return {found[0], found[1]};
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
