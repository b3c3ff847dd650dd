// The same work on many things, on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace linerate {

/// work(index, worker) once for each index below `count`; `worker`, below `workers`, is not used
/// by two at once. Returns when all is done. Throws what the lowest index threw, if any did, and
/// Stopped (stop.hpp) if the work was stopped; which worker takes which index is open.
void side_by_side(std::size_t count, std::size_t workers,
                  const std::function<void(std::size_t index, std::size_t worker)>& work);

}  // namespace linerate
