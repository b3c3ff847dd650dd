// How far a reader is.
#pragma once

#include <cstddef>
#include <functional>

namespace linerate::trace {

/// Bytes of JSON done so far, by one reader; called every few MB.
using Progress = std::function<void(std::size_t done)>;

}  // namespace linerate::trace
