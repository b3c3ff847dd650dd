// Private: the bytes of one PyTorch/Kineto file become a KinetoTrace.
#pragma once

#include <string>

#include "linerate/trace/input/padded_text.hpp"
#include "linerate/trace/input/read_options.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Throws InputError naming file and place. Mends what real files have broken (json_repair.hpp) and
/// notes it.
KinetoTrace read_kineto(PaddedText text, const std::string& name, const ReadOptions& options = {});

}  // namespace linerate::trace
