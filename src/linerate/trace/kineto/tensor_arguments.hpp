// Private: "Input Dims" and "Input type", the arguments of an operator that describe its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace linerate::trace {

struct TypeFound {
  int bytes = -1;
  std::string_view name;
};

/// "Input Dims": the elements of all tensors in it, [[64, 3, 7, 7], []] -> 9408; innermost lists
/// are shapes. -1 when there is no shape, or when the product leaves 2^62. An empty list inside so
/// many brackets is the shape of a scalar; 0: none is, as arguments that are no tensors have one
/// too.
std::int64_t elements_of_dims(std::string_view list, int scalar_depth = 0);
/// "Input Dims" of one argument, and its type is that of a tensor's elements: [[]], ["float"].
bool is_one_scalar(std::string_view dims, std::string_view types);
/// The same of the first and of the second argument alone, whose lists of tensors may hold scalars;
/// -1 if there is no shape.
std::pair<std::int64_t, std::int64_t> elements_of_first_two(std::string_view list);
using TensorShape = std::vector<std::int64_t>;
/// The shapes of the first `most` arguments; that of a scalar, of a list of tensors and of what is
/// no tensor is empty. Empty if a number is none.
std::vector<TensorShape> shapes_of_first(std::string_view list, std::size_t most);
/// -1 beyond 2^40; 1 for a scalar.
std::int64_t elements_of(const TensorShape& shape);
/// "Input type": the first that is an element type, ["TensorList", "float"] -> 4 bytes.
TypeFound first_element_type(std::string_view list);

}  // namespace linerate::trace
