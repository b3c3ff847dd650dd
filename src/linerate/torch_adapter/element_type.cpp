#include "linerate/torch_adapter/element_type.hpp"

#include <array>
#include <utility>

#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {
namespace {

using Pair = std::pair<DType, c10::ScalarType>;
constexpr std::array<Pair, kDTypeNames.size()> kTypes = {{
    {DType::f32, c10::ScalarType::Float},
    {DType::f64, c10::ScalarType::Double},
    {DType::f16, c10::ScalarType::Half},
    {DType::bf16, c10::ScalarType::BFloat16},
    {DType::i32, c10::ScalarType::Int},
    {DType::i64, c10::ScalarType::Long},
    {DType::u8, c10::ScalarType::Byte},
}};

}  // namespace

c10::ScalarType scalar_type(DType type) {
  for (const auto& [ours, theirs] : kTypes)
    if (ours == type) return theirs;
  throw InternalError("a DType that LibTorch has no name for");
}

std::optional<DType> dtype_of(c10::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes)
    if (theirs == type) return ours;
  return std::nullopt;
}

}  // namespace linerate::torch_adapter
