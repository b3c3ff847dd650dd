// Makes a stream program by a run of the StreamRunner on no device.
#pragma once

#include <memory>

#include "linerate/exec/streams/stream_program.hpp"

namespace linerate::exec {

/// Runs the schedule, and each variant that is not in it twice, on no device to see which ends are
/// waited for.
std::shared_ptr<const StreamProgram> make_stream_program(std::shared_ptr<const doc::Plan> plan,
                                                         std::int32_t rank);

}  // namespace linerate::exec
