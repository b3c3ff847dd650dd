// Private: Chrome traces that other programs write, known by what is in them, so that they are
// refused by name instead of being read as PyTorch traces of nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace linerate::trace {

/// For a trace without an event of PyTorch's categories: what it is and what to do, or nullopt if
/// it says that PyTorch wrote it.
std::optional<std::string> foreign_trace(std::string_view text);

}  // namespace linerate::trace
