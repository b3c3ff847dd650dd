// Reading data sets, whole and broken.
#include "linerate/zoo/dataset.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "folder.hpp"
#include "linerate/core/error.hpp"
#include "linerate/models/catalogue.hpp"
#include "support/message_of.hpp"

namespace linerate::zoo {
namespace {

using testing::HasSubstr;

class Files : public InFolder {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
};

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int v : values) text.push_back(static_cast<char>(v));
  return text;
}

TEST_F(Files, IdxHoldsItsShapeAndValues) {
  const auto path = write("a", bytes({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6}));
  const IdxArray array = read_idx(path);
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(array.values, (std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Files, IdxOfAnotherKindOrWithARestIsRefused) {
  EXPECT_THROW(read_idx(write("a", "hello, world")), InputError);
  EXPECT_THROW(read_idx(write("b", bytes({0, 0, 8, 1, 0, 0, 0, 1, 1, 2}))), InputError);
  EXPECT_THROW(read_idx(write("c", bytes({0, 0, 8, 2, 255, 255, 255, 255, 255, 255, 255, 255}))),
               InputError);
}

TEST_F(Files, CifarRecordsHaveALabelAndThreePlanes) {
  std::string record(3073, '\x07');
  for (int i = 1; i <= 5; ++i) write("data_batch_" + std::to_string(i) + ".bin", record + record);
  write("test_batch.bin", record);
  const DataSet set = load_cifar10({folder_, {}, 1, 1});
  EXPECT_EQ(set.train.size(), 10);
  EXPECT_EQ(set.test.size(), 1);
  EXPECT_EQ(set.train.labels[9], 7);
  write("data_batch_3.bin", record.substr(1));
  EXPECT_THAT(support::message_of<InputError>([&] {
                return load_cifar10({folder_, {}, 1, 1});
              }),
              HasSubstr("data_batch_3.bin: byte 0"));
}

TEST(FashionMnist, OfDebianHasSeventyThousandImages) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "package dataset-fashion-mnist is not installed";
  DataSet set = load_fashion_mnist({});
  EXPECT_EQ(set.train.size(), 60000);
  EXPECT_EQ(set.test.size(), 10000);
  double sum = 0;
  for (const std::uint8_t p : set.train.pixels) sum += p;
  EXPECT_NEAR(sum / (60000.0 * 784 * 255), set.mean[0], 1e-4);
  pad_images(set.test, {1, 32, 32});
  EXPECT_EQ(set.test.pixels.size(), 10000u * 32 * 32);
}

TEST(Synthetic, IsAFunctionOfItsSeed) {
  const models::Description model = models::describe("mlp");
  EXPECT_EQ(make_synthetic({{}, model, 1, 64}).train.pixels,
            make_synthetic({{}, model, 1, 64}).train.pixels);
  EXPECT_NE(make_synthetic({{}, model, 1, 64}).train.pixels,
            make_synthetic({{}, model, 2, 64}).train.pixels);
}

TEST(Padding, RefusesToCut) {
  Samples s{{1, 2, 2}, {1, 2, 3, 4}, {}, {0}, 1};
  EXPECT_THROW(pad_images(s, {1, 1, 1}), UsageError);
  pad_images(s, {1, 4, 4});
  EXPECT_EQ(s.pixels, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace linerate::zoo
