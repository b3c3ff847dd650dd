#include "linerate/core/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "linerate/core/error.hpp"

namespace {

/// What the library asked of the system, in order, and what it is told instead of the truth.
struct System {
  std::vector<std::string> calls;
  int rename_error = 0, folder_sync_error = 0;
  std::filesystem::path planted;  // the first file to be created is this link already
  std::set<std::string> created;
} system_;
std::mutex mutex_;

bool is_folder(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

// In place of the C library's: what a disk, a mount, a network or an intruder may do, here at will.
extern "C" int rename(const char* from, const char* to) noexcept {
  const std::lock_guard lock(mutex_);
  system_.calls.emplace_back("rename");
  if (system_.rename_error != 0) return errno = system_.rename_error, -1;
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
extern "C" int fsync(int fd) {
  const std::lock_guard lock(mutex_);
  const bool folder = is_folder(fd);
  system_.calls.emplace_back(folder ? "sync folder" : "sync file");
  if (folder && system_.folder_sync_error != 0) return errno = system_.folder_sync_error, -1;
  return folder ? 0 : fdatasync(fd);
}
extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const std::lock_guard lock(mutex_);
  if (flags & O_CREAT) system_.created.insert(path);
  if (flags & O_CREAT && !system_.planted.empty()) {
    std::filesystem::create_symlink(system_.planted, path);
    system_.planted.clear();
  }
  return openat(AT_FDCWD, path, flags, mode);
}

namespace linerate {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    system_ = {};
    folder_ = fs::temp_directory_path() / ("linerate-file-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_))
      all.push_back(entry.path().filename().string());
    return all;
  }
  void put(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name) << content;
  }
  static unsigned mode_of(const fs::path& path) {
    struct ::stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  fs::path folder_;
};

/// What a killed writer leaves: no process has it open.
constexpr const char* kStale = "x.part-0123456789abcdef";

TEST_F(Files, AreReplacedWithoutATraceOfTheTemporary) {
  const std::string content("a\0b\r\n\xff", 6);
  write_file_atomically(folder_ / "x", "old");
  write_file_atomically(folder_ / "x", content);
  EXPECT_EQ(read_file(folder_ / "x"), content);
  EXPECT_THAT(names(), ElementsAre("x"));
}

TEST_F(Files, AreSyncedBeforeTheRenameAndTheirFolderAfterIt) {
  write_file_atomically(folder_ / "x", "new");
  EXPECT_THAT(system_.calls, ElementsAre("sync file", "rename", "sync folder"));
}

TEST_F(Files, AFolderThatKnowsNoSyncIsFineAndOneThatFailsIsNot) {
  system_.folder_sync_error = EINVAL;
  EXPECT_NO_THROW(write_file_atomically(folder_ / "x", "new"));
  system_.folder_sync_error = EIO;
  EXPECT_THAT([&] { write_file_atomically(folder_ / "x", "new"); },
              ThrowsMessage<InputError>(HasSubstr("cannot sync its folder")));
}

TEST_F(Files, AFailedRenameKeepsTheOldFileAndLeavesNoTemporary) {
  put("x", "old");
  system_.rename_error = EBUSY;  // the target is a mount point
  EXPECT_THAT(
      [&] { write_file_atomically(folder_ / "x", "new"); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("cannot rename into place"), HasSubstr("busy"))));
  EXPECT_EQ(read_file(folder_ / "x"), "old");
  EXPECT_THAT(names(), ElementsAre("x"));
}

// A limit on the size of files ends in the middle of the content, as a full disk does.
TEST_F(Files, AFullDiskKeepsTheOldFileAndLeavesNoTemporary) {
  put("x", "old");
  struct ::rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct ::rlimit small { 100, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT([&] { write_file_atomically(folder_ / "x", std::string(1000, 'n')); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("x: cannot write"), HasSubstr("large"))));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(folder_ / "x"), "old");
  EXPECT_THAT(names(), ElementsAre("x"));
}

TEST_F(Files, KeepTheModeOfTheOldOneAndElseFollowTheUmask) {
  put("x", "old");
  fs::permissions(folder_ / "x", fs::perms(0600));
  write_file_atomically(folder_ / "x", "new");
  EXPECT_EQ(mode_of(folder_ / "x"), 0600u);
  fs::permissions(folder_ / "x", fs::perms(0666));  // wider than the umask
  write_file_atomically(folder_ / "x", "new");
  EXPECT_EQ(mode_of(folder_ / "x"), 0666u);
  const ::mode_t before = ::umask(0027);
  write_file_atomically(folder_ / "y", "new");
  ::umask(before);
  EXPECT_EQ(mode_of(folder_ / "y"), 0640u);
}

TEST_F(Files, ATemporaryIsNeverAFileThatWasThere) {
  put("victim", "somebody's");
  system_.planted = folder_ / "victim";  // the name was guessed
  write_file_atomically(folder_ / "x", "new");
  EXPECT_TRUE(system_.planted.empty());
  EXPECT_EQ(read_file(folder_ / "victim"), "somebody's");
  EXPECT_EQ(read_file(folder_ / "x"), "new");
  EXPECT_FALSE(fs::is_symlink(folder_ / "x"));
}

TEST_F(Files, TemporariesHaveNamesThatNobodyKnowsBefore) {
  for (int i = 0; i < 3; ++i) write_file_atomically(folder_ / "x", "new");
  EXPECT_EQ(system_.created.size(), 3u);
}

TEST_F(Files, StaleTemporariesOfTheSameFileAreRemovedAndNoOthers) {
  put(kStale, "half");
  put("y.part-0123456789abcdef", "of another file");
  put("x.part-1", "somebody's own");
  put("x.part-0123456789abcdefg", "somebody's own");
  write_file_atomically(folder_ / "x", "new");
  EXPECT_THAT(names(), UnorderedElementsAre("x", "y.part-0123456789abcdef", "x.part-1",
                                            "x.part-0123456789abcdefg"));
}

TEST_F(Files, TheTemporaryOfALiveWriterStays) {
  put(kStale, "slow");
  const Descriptor alive(::open((folder_ / kStale).c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(alive.get(), LOCK_EX), 0);
  write_file_atomically(folder_ / "x", "quick");
  EXPECT_THAT(names(), UnorderedElementsAre("x", kStale));
}

TEST_F(Files, ManyWritersOfOneFileLeaveOneOfTheirContents) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      for (int i = 0; i < 25; ++i)
        write_file_atomically(folder_ / "x", std::string(10'000, static_cast<char>('a' + w)));
    });
  for (std::thread& t : writers) t.join();
  const std::string content = read_file(folder_ / "x");
  EXPECT_EQ(content, std::string(10'000, content[0]));
  EXPECT_THAT(names(), ElementsAre("x"));
}

TEST_F(Files, ASymbolicLinkStaysOneAndItsFileIsReplaced) {
  fs::create_directory(folder_ / "real");
  put("real/x", "old");
  fs::create_symlink("real/x", folder_ / "link");
  fs::create_symlink("link", folder_ / "link to link");
  write_file_atomically(folder_ / "link to link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link to link"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "real" / "x"), "new");
  fs::create_symlink("real/y", folder_ / "dangling");
  write_file_atomically(folder_ / "dangling", "made");
  EXPECT_EQ(read_file(folder_ / "real" / "y"), "made");
  fs::create_symlink("circle", folder_ / "circle");
  EXPECT_THROW(write_file_atomically(folder_ / "circle", "new"), InputError);
}

TEST_F(Files, TakeNamesAsLongAsTheSystemDoes) {
  const std::string name(255, 'n');
  write_file_atomically(folder_ / name, "content");
  EXPECT_THAT(names(), ElementsAre(name));
}

TEST_F(Files, WritesIntoWhatCannotBeRenamedOver) {
  EXPECT_NO_THROW(write_file_atomically("/dev/null", "gone"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read_file(folder_ / "pipe"); });
  write_file_atomically(folder_ / "pipe", "through the pipe");
  reader.join();
  EXPECT_EQ(got, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
}

// linerate export ... -o /dev/stdout > file: between what is printed before and after.
TEST_F(Files, ADescriptorOfThisProcessIsWrittenToWhereItStands) {
  put("x", "");
  const Descriptor file(::open((folder_ / "x").c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::write(file.get(), "before ", 7), 7);
  write_file_atomically("/dev/fd/" + std::to_string(file.get()), "content ");
  ASSERT_EQ(::write(file.get(), "after", 5), 5);
  EXPECT_EQ(read_file(folder_ / "x"), "before content after");
}

TEST_F(Files, NamePlaceAndReasonWhenAbsent) {
  EXPECT_THAT([&] { read_file(folder_ / "absent"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("absent"), HasSubstr("No such file"))));
  EXPECT_THROW(read_file(folder_), InputError);
  EXPECT_THROW(write_file_atomically(folder_ / "no" / "such", "x"), InputError);
}

TEST_F(Files, AFolderIsMadeAndTriedWithoutATrace) {
  make_and_try_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_empty(folder_ / "a" / "b"));
  EXPECT_THAT(system_.calls, testing::Contains("sync file"));  // it was written to
  put("file", "");
  EXPECT_THAT([&] { make_and_try_folder(folder_ / "file"); },
              ThrowsMessage<InputError>(HasSubstr("expected a folder, found a file")));
  EXPECT_THAT([&] { make_and_try_folder(folder_ / "file" / "below"); },
              ThrowsMessage<InputError>(HasSubstr("cannot make the folder")));
}

// sysfs takes nobody's files, root's neither.
TEST_F(Files, AFolderThatTakesNoFilesIsNamedWithTheReason) {
  EXPECT_THAT([&] { make_and_try_folder("/sys/kernel"); },
              ThrowsMessage<InputError>(HasSubstr("/sys/kernel: trying to write")));
}

TEST_F(Files, TheFolderOfAFileIsTriedAndAPipeIsLeftAlone) {
  make_and_try_folder_of(folder_ / "a" / "losses.csv");
  EXPECT_TRUE(fs::is_empty(folder_ / "a"));
  make_and_try_folder_of("/dev/null");
  make_and_try_folder_of("/dev/stdout");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  make_and_try_folder_of(folder_ / "pipe");  // nobody reads: opening it would wait
  EXPECT_THAT([&] { make_and_try_folder_of(folder_ / "a"); },
              ThrowsMessage<InputError>(HasSubstr("expected a file, found a folder")));
}

}  // namespace
}  // namespace linerate
