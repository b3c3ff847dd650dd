// The checkpoint's file form: what goes in comes out, and nothing damaged is taken.
#include "linerate/zoo/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "linerate/core/error.hpp"

namespace linerate::zoo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string sample(const std::vector<float>& values) {
  Checkpoint c{{{"model", "mlp"}}, 2, 3, 40, {}};
  c.arrays.push_back({"model.w",
                      DType::f32,
                      {static_cast<std::int64_t>(values.size())},
                      {reinterpret_cast<const char*>(values.data()), 4 * values.size()}});
  return encode(c);
}

TEST(Checkpoint, ComesBackAsItWas) {
  const std::vector<float> values = {1.5f, -0.0f, 3e-42f};
  const std::string content = sample(values);
  const Checkpoint c = decode(content, "file");
  EXPECT_EQ(c.settings.at("model"), "mlp");
  EXPECT_EQ(c.epoch, 2);
  EXPECT_EQ(c.step_in_epoch, 3);
  EXPECT_EQ(c.step, 40);
  ASSERT_EQ(c.arrays.size(), 1u);
  EXPECT_EQ(c.arrays[0].bytes, std::string_view(reinterpret_cast<const char*>(values.data()), 12));
}

TEST(Checkpoint, EveryTruncationIsRefusedWithItsFile) {
  const std::string content = sample({1, 2, 3});
  for (std::size_t n = 0; n < content.size(); ++n)
    EXPECT_THAT([&] { decode(std::string_view(content).substr(0, n), "dir/checkpoint"); },
                ThrowsMessage<InputError>(HasSubstr("dir/checkpoint")))
        << n;
}

TEST(Checkpoint, EveryFlippedBitIsRefused) {
  const std::string content = sample({1, 2, 3});
  for (std::size_t i = 0; i < content.size(); ++i) {
    std::string damaged = content;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_THROW(decode(damaged, "file"), InputError) << i;
  }
}

}  // namespace
}  // namespace linerate::zoo
