#include "linerate/trace/input/input_file.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

std::string numbers(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += noise(i) + "\n";
  return text;
}

/// The same bytes from a file, and from memory unless they are gzip.
std::vector<InputFile> both(const std::string& content) {
  const auto path = std::filesystem::path(testing::TempDir()) / "linerate_input_test.bin";
  std::ofstream(path, std::ios::binary) << content;
  std::vector<InputFile> inputs;
  if (!content.starts_with("\x1f\x8b")) inputs.push_back(InputFile::from_memory(content, "memory"));
  inputs.push_back(InputFile::open(path));
  std::filesystem::remove(path);  // what is open can be read
  return inputs;
}

TEST(InputFile, IsReadWholeAndAlikeWithoutItsByteOrderMark) {
  const std::string text = numbers(1'000'000);  // several MiB
  for (const std::string& content : {text, "\xef\xbb\xbf" + text, gzipped(text)})
    for (InputFile& input : both(content)) {
      EXPECT_EQ(input.head(), text.substr(0, 64 * 1024));
      EXPECT_EQ(input.read_all().view(), text);
      EXPECT_FALSE(input.truncated());
    }
}

TEST(InputFile, LinesAreTheSameFromEither) {
  const std::string text = numbers(50'000) + "the last, without a line end";
  for (const std::string& content : {text, gzipped(text)})
    for (InputFile& input : both(content)) {
      std::string again;
      for (std::string_view line; input.next_line(line);) again += std::string(line) + "\n";
      EXPECT_EQ(again, text + "\n");
      EXPECT_EQ(input.line_number(), 50'001u);
    }
}

TEST(InputFile, NothingIsAWholeFileAndMembersFollowEachOther) {  // pigz, concatenated files
  for (const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {gzipped(""), ""}, {gzipped("one\n") + gzipped("two\n"), "one\ntwo\n"}})
    for (InputFile& input : both(content)) {
      EXPECT_EQ(input.read_all().view(), text);
      EXPECT_FALSE(input.truncated());
    }
}

TEST(InputFile, KeepsWhatCameBeforeTheEndOfACutStream) {
  const std::string text = numbers(100'000), whole = gzipped(text);
  for (InputFile& input : both(whole.substr(0, whole.size() / 2))) {
    const PaddedText read = input.read_all();
    EXPECT_TRUE(input.truncated());
    EXPECT_GT(read.size(), text.size() / 3);
    EXPECT_TRUE(text.starts_with(read.view()));
  }
}

TEST(InputFile, LosesLittleBeforeADamagedPlace) {
  const std::string text = numbers(100'000);
  std::string damaged = gzipped(text);
  // The check sum at the end: all of the text is there, and zlib drops what it hands out last.
  damaged[damaged.size() - 8] = static_cast<char>(damaged[damaged.size() - 8] ^ 1);
  for (InputFile& input : both(damaged)) {
    const PaddedText read = input.read_all();
    EXPECT_TRUE(input.truncated());
    EXPECT_GE(read.size() + 16 * 1024, text.size());
    EXPECT_TRUE(text.starts_with(read.view()));
  }
}

TEST(InputFile, AFolderIsNoFile) {
  EXPECT_THAT(refusal_of([] { InputFile::open(testing::TempDir()); }),
              testing::HasSubstr("expected a file, found a folder"));
}

}  // namespace
}  // namespace linerate::trace
