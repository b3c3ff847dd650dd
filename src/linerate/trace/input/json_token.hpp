// Private: raw JSON tokens as simdjson hands them out (quotes and trailing blanks included).
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace linerate::trace {

/// Does the key that starts at `raw` (behind its quote) equal `name`? Reads at most name.size() + 1
/// bytes, which the padding covers.
template <std::size_t N>
bool key_is(const char* raw, const char (&name)[N]) {
  return std::memcmp(raw, name, N - 1) == 0 && raw[N - 1] == '"';
}

/// The token without trailing blanks and quotes, escapes left as they are.
inline std::string_view unquoted(std::string_view token) {
  while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' ||
                            token.back() == '\t'))
    token.remove_suffix(1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"')
    token = token.substr(1, token.size() - 2);
  return token;
}

struct TypeFound {
  int bytes = -1;
  std::string_view name;
};

/// "Input Dims": the elements of all tensors in it, [[64, 3, 7, 7], []] -> 9408; innermost lists
/// are shapes. -1 when there is no shape, or when the product leaves 2^62.
std::int64_t elements_of_dims(std::string_view list);
/// "Input type": the first that is an element type, ["TensorList", "float"] -> 4 bytes.
TypeFound first_element_type(std::string_view list);

}  // namespace linerate::trace
