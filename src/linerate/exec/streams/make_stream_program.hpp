// Makes a stream program by a run of the StreamRunner on no device.
#pragma once

#include <memory>

#include "linerate/exec/streams/stream_program.hpp"

namespace linerate::exec {

/// An event costs a device about a microsecond, so a task gets one only if a stream or the host
/// waits for its end. Which ends are waited for follows from the Plan alone. So this runs the steps
/// once on a device that does nothing, with an event after each task. It keeps the events that were
/// waited for. It runs the schedule, and each variant that is not in the schedule twice.
std::shared_ptr<const StreamProgram> make_stream_program(std::shared_ptr<const doc::Plan> plan,
                                                         std::int32_t rank);

}  // namespace linerate::exec
