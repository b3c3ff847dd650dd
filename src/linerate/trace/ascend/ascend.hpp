// Private: Ascend's trace_view.json, which torch_npu's profiler writes: a list of Chrome events in
// which processes, named by metadata anywhere in it, say what an event is.
#pragma once

#include <string>
#include <string_view>

#include "linerate/trace/input/padded_text.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// A list of events with a process "Ascend Hardware".
bool is_ascend(std::string_view text);

/// Of "Ascend Hardware" tasks of the cores are computation and MEMCPY and SDMA tasks copies; waits,
/// events and writes of flags are nothing. Collectives are the hcom_* events of the process
/// "Communication" (older: "HCCL"), outside of its planes. Throws InputError.
Job read_ascend(PaddedText text, const std::string& name);

}  // namespace linerate::trace
