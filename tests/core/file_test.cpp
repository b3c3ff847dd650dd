#include "linerate/core/file.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include "linerate/core/error.hpp"

namespace linerate {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("linerate-file-test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(Files, ComeBackByteForByte) {
  const std::string content("a\0b\r\n\xff", 6);
  write_file_atomically(folder_ / "x", content);
  EXPECT_EQ(read_file(folder_ / "x"), content);
}

TEST_F(Files, AreReplacedWithoutATraceOfTheTemporary) {
  write_file_atomically(folder_ / "x", "old");
  write_file_atomically(folder_ / "x", "new");
  EXPECT_EQ(read_file(folder_ / "x"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(Files, WritesIntoWhatCannotBeRenamedOver) {
  EXPECT_NO_THROW(write_file_atomically("/dev/null", "gone"));
}

TEST_F(Files, NamePlaceAndReasonWhenAbsent) {
  try {
    read_file(folder_ / "absent");
    FAIL() << "no exception";
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(),
                testing::AllOf(testing::HasSubstr("absent"), testing::HasSubstr("No such file")));
  }
  EXPECT_THROW(read_file(folder_), InputError);
  EXPECT_THROW(write_file_atomically(folder_ / "no" / "such", "x"), InputError);
}

}  // namespace
}  // namespace linerate
