// Element types of payloads and files as LibTorch calls them.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "linerate/core/dtype.hpp"

namespace linerate::torch_adapter {

/// LibTorch's name of a DType, which has the same size.
c10::ScalarType scalar_type(DType type);
/// Absent for types that no document names: complex, quantised, bool, 8- and 16-bit integers with a
/// sign.
std::optional<DType> dtype_of(c10::ScalarType type);

}  // namespace linerate::torch_adapter
