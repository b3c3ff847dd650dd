// The same work on many things, on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace linerate {

/// Calls work(index, worker) once for each index below `count`. `worker` is below `workers`, and no
/// two calls with the same one run at a time. Returns when all is done. Throws the exception of the
/// lowest index, if there is one, and Stopped (stop.hpp) if the work was stopped. Which worker
/// takes which index is open.
void side_by_side(std::size_t count, std::size_t workers,
                  const std::function<void(std::size_t index, std::size_t worker)>& work);

}  // namespace linerate
