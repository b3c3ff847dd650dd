// Private: Chrome traces that other programs write, told by what stands in them, so that they are
// refused by name instead of being read as PyTorch traces of nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace linerate::trace {

/// Of a trace none of whose events has a category of PyTorch's: what it is and what to do, or
/// nullopt where it says that PyTorch wrote it.
std::optional<std::string> foreign_trace(std::string_view text);

}  // namespace linerate::trace
