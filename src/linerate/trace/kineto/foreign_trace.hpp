// Private: Chrome traces that other programs write. They are known by what is in them, and refused
// by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace linerate::trace {

/// For a trace without an event of PyTorch's categories: what it is and what to do, or nullopt if
/// it says that PyTorch wrote it.
std::optional<std::string> foreign_trace(std::string_view text);

}  // namespace linerate::trace
