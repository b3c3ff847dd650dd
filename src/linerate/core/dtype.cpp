#include "linerate/core/dtype.hpp"

#include "linerate/core/error.hpp"

namespace linerate {

DType parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDTypeNames.size(); ++i)
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  throw UsageError("unknown element type \"" + std::string(name) +
                   "\"; known: f32 f64 f16 bf16 i32 i64 u8");
}

}  // namespace linerate
