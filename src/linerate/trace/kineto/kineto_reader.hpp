// Private: the bytes of one PyTorch/Kineto file become a KinetoTrace.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Throws InputError naming file and place. Mends what real files have broken (json_repair.hpp) and
/// notes it.
KinetoTrace read_kineto(PaddedText text, const std::string& name, const ReadOptions& options = {});

// Private: Chrome traces that other programs write. They are known by what is in them, and refused
// by name.

/// For a trace without an event of PyTorch's categories: what it is and what to do, or nullopt if
/// it says that PyTorch wrote it.
std::optional<std::string> foreign_trace(std::string_view text);

}  // namespace linerate::trace
