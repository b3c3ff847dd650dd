// The checkpoint's file form: what goes in comes out, and nothing damaged is taken. Its place:
// never overwritten unasked.
#include "linerate/zoo/checkpoint.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "folder.hpp"
#include "linerate/core/error.hpp"

namespace linerate::zoo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string sample(const std::vector<float>& values) {
  return encode({{{"model", "mlp"}}, 2, 3, 40, {{"model.w", at::tensor(values)}}});
}

TEST(Checkpoint, ComesBackAsItWas) {
  const std::vector<float> values = {1.5f, -0.0f, 3e-42f};
  const std::string content = sample(values);
  const Checkpoint c = decode(content, "file");
  EXPECT_EQ(c.settings.at("model"), "mlp");
  EXPECT_EQ(c.epoch, 2);
  EXPECT_EQ(c.step_in_epoch, 3);
  EXPECT_EQ(c.step, 40);
  ASSERT_EQ(c.tensors.size(), 1u);
  EXPECT_EQ(c.tensors[0].first, "model.w");
  EXPECT_EQ(std::memcmp(c.tensors[0].second.const_data_ptr(), values.data(), 12), 0);
}

// A view of a large tensor brings only its own values.
TEST(Checkpoint, HoldsAViewWithoutTheRestOfItsStorage) {
  const at::Tensor whole = at::arange(100'000, at::kFloat), part = whole.slice(0, 7, 9);
  const std::string content = encode({{}, 0, 0, 0, {{"part", part}}});
  EXPECT_LT(content.size(), 10'000u);
  EXPECT_TRUE(at::equal(decode(content, "file").tensors.at(0).second, part));
}

TEST(Checkpoint, AnOlderFormatIsRefusedByItsNumber) {
  EXPECT_THAT([] { decode("linerate checkpoint 1\nwhatever", "dir/checkpoint"); },
              ThrowsMessage<InputError>(HasSubstr(
                  "dir/checkpoint: expected a checkpoint of format 2, found one of format 1")));
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

using Folder = InFolder;

TEST_F(Folder, WhatIsNoCheckpointIsNotOverwritten) {
  const CheckpointFolder folder(folder_);
  EXPECT_NO_THROW(folder.require_none());
  std::ofstream(folder_ / "checkpoint") << "somebody's own";
  EXPECT_THAT([&] { folder.require_none(); },
              ThrowsMessage<UsageError>(HasSubstr("cannot be read as a checkpoint")));
}

TEST_F(Folder, AFirstWriteThatFailsSaysThatNoneIsThere) {
  CheckpointFolder folder(folder_ / "ck");
  std::filesystem::remove_all(folder_ / "ck");
  EXPECT_THAT([&] { folder.write({}); },
              ThrowsMessage<InputError>(testing::AllOf(
                  HasSubstr("No such file"), HasSubstr("there is no checkpoint before it"))));
}

}  // namespace
}  // namespace linerate::zoo
