// Element types keep their size: what a payload's bytes are computed with is what its memory has.
#include "linerate/torch_adapter/agreed_model.hpp"

#include <gtest/gtest.h>

namespace linerate::torch_adapter {
namespace {

TEST(ElementType, EveryOneHasTheSameSizeInLibTorchAndComesBack) {
  for (const std::string_view name : kDTypeNames) {
    const DType type = parse_dtype(name);
    EXPECT_EQ(static_cast<std::int64_t>(c10::elementSize(scalar_type(type))), size_of(type))
        << name;
    EXPECT_EQ(dtype_of(scalar_type(type)), type) << name;
  }
}

TEST(ElementType, WhatNoDocumentNamesHasNone) {
  EXPECT_FALSE(dtype_of(c10::ScalarType::Bool));
  EXPECT_FALSE(dtype_of(c10::ScalarType::ComplexFloat));
}

}  // namespace
}  // namespace linerate::torch_adapter
