// A buffer has the element type of what it was made from, and none by default.
#include "linerate/comm/buffer.hpp"

#include <gmock/gmock.h>

#include <array>
#include <span>
#include <type_traits>
#include <vector>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

template <typename T>
class BufferOf : public testing::Test {};
template <typename T, DType type>
struct Case {
  using Value = T;
  static constexpr DType kType = type;
};
using Cases = testing::Types<Case<float, DType::f32>, Case<double, DType::f64>,
                             Case<std::int32_t, DType::i32>, Case<std::int64_t, DType::i64>,
                             Case<long long, DType::i64>, Case<std::uint8_t, DType::u8>,
                             Case<std::byte, DType::u8>, Case<char, DType::u8>>;
TYPED_TEST_SUITE(BufferOf, Cases);

TYPED_TEST(BufferOf, WhatHasATypeHasItsTypeMemoryAndCount) {
  using T = typename TypeParam::Value;
  std::vector<T> vector(5);
  std::array<T, 3> array{};
  T plain[2] = {};
  T one{};
  const auto expect = [](Buffer b, const void* data, std::int64_t count) {
    EXPECT_EQ(b.data, data);
    EXPECT_EQ(b.count.value, count);
    EXPECT_EQ(b.dtype, TypeParam::kType);
    EXPECT_EQ(size_of(b.dtype), static_cast<std::int64_t>(sizeof(T)));
  };
  expect(buffer(std::span<T>(vector)), vector.data(), 5);
  expect(buffer(std::span(vector).subspan(1, 2)), vector.data() + 1, 2);
  expect(buffer(vector), vector.data(), 5);
  expect(buffer(array), array.data(), 3);
  expect(buffer(plain), plain, 2);
  expect(buffer(one), &one, 1);
}

TYPED_TEST(BufferOf, WhatIsConstIsOnlyRead) {
  using T = typename TypeParam::Value;
  const std::vector<T> vector(5);
  const T one{};
  static_assert(std::is_same_v<decltype(buffer(vector)), ConstBuffer>);
  static_assert(std::is_same_v<decltype(buffer(std::span<const T>(vector))), ConstBuffer>);
  static_assert(std::is_same_v<decltype(buffer(one)), ConstBuffer>);
  EXPECT_EQ(buffer(vector).data, vector.data());
  EXPECT_EQ(buffer(vector).dtype, TypeParam::kType);
}

template <typename T>
concept HasBuffer = requires(T&& values) {
  buffer(std::forward<T>(values));
};

TEST(Buffer, IsNotMadeOfOtherTypesNorOfWhatIsGoneAfterwards) {
  static_assert(!HasBuffer<std::vector<std::uint32_t>&>);
  static_assert(!HasBuffer<std::vector<std::int16_t>&>);
  static_assert(!HasBuffer<std::vector<bool>&>);
  static_assert(!HasBuffer<bool&>);
  static_assert(!HasBuffer<long double&>);
  static_assert(!HasBuffer<std::vector<float>>);  // a temporary
  static_assert(HasBuffer<std::span<float>>);     // its array is not
  static_assert(!HasBuffer<float>);
  // No default element type behind void*.
  static_assert(!std::is_default_constructible_v<Buffer>);
  static_assert(!std::is_constructible_v<Buffer, void*, Elements>);
  static_assert(!std::is_constructible_v<ConstBuffer, const void*, Elements>);
  static_assert(!std::is_convertible_v<ConstBuffer, Buffer>);
}

TEST(UniqueName, IsTheWantedOneFirstAndThenNumbered) {
  run_ranks(2, [](Communicator& communicator) {
    EXPECT_EQ(communicator.unique_name("net"), "net");
    EXPECT_EQ(communicator.unique_name("other"), "other");
    EXPECT_EQ(communicator.unique_name("net"), "net (2)");
    EXPECT_EQ(communicator.unique_name("net"), "net (3)");
  });
}

}  // namespace
}  // namespace linerate::comm
