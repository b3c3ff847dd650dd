// The place of checkpoints: tried first, one run's at a time, and never overwritten unasked.
#include "linerate/zoo/checkpoint.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "folder.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"

namespace linerate::zoo {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Folder : public InFolder {
 protected:
  static Checkpoint at_step(std::int64_t step) { return {{{"model", "mlp"}}, 1, 0, step, {}}; }
};

TEST_F(Folder, IsMadeAndWhatIsWrittenComesBack) {
  CheckpointFolder folder(folder_ / "new" / "ck");
  EXPECT_NO_THROW(folder.require_none());
  folder.write(at_step(7));
  const std::string content = read_file(folder_ / "new" / "ck" / "checkpoint");
  EXPECT_EQ(decode(content, "x").step, 7);
}

TEST_F(Folder, AFileInItsPlaceIsRefused) {
  std::ofstream(folder_ / "ck") << "x";
  EXPECT_THAT([&] { CheckpointFolder folder(folder_ / "ck"); },
              ThrowsMessage<InputError>(HasSubstr("ck: expected a folder, found a file")));
}

// sysfs takes nobody's files, root's neither.
TEST_F(Folder, OneThatTakesNoFilesIsRefused) {
  EXPECT_THAT([&] { CheckpointFolder folder("/sys/kernel"); },
              ThrowsMessage<InputError>(HasSubstr("/sys/kernel: trying to write")));
}

TEST_F(Folder, ACheckpointThatIsThereIsNamedWithItsModelAndStep) {
  CheckpointFolder folder(folder_);
  folder.write(at_step(40));
  EXPECT_THAT([&] { folder.require_none(); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("found a checkpoint of mlp at step 40"),
                                              HasSubstr("--resume"), HasSubstr("--overwrite"))));
}

TEST_F(Folder, AFileThatCannotBeReadAsOneIsNotOverwrittenEither) {
  CheckpointFolder folder(folder_);
  std::ofstream(folder_ / "checkpoint") << "somebody's own";
  EXPECT_THAT([&] { folder.require_none(); },
              ThrowsMessage<UsageError>(HasSubstr("cannot be read as a checkpoint")));
}

TEST_F(Folder, TwoRunsDoNotShareOne) {
  const CheckpointFolder first(folder_);
  EXPECT_THAT(
      [&] { CheckpointFolder second(folder_); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("another run keeps its checkpoints here (process " +
                                                std::to_string(::getpid()) + " on host "),
                                      HasSubstr("give another --checkpoint folder"))));
}

TEST_F(Folder, IsFreeAgainWhenItsRunHasEndedOrWasKilled) {
  { const CheckpointFolder ended(folder_); }
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CheckpointFolder mine(folder_);
    static_cast<void>(!::write(ready[1], "x", 1));
    ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THROW(CheckpointFolder other(folder_), InputError);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NO_THROW(CheckpointFolder after(folder_));
}

TEST_F(Folder, AFailedWriteSaysWhatIsLeft) {
  CheckpointFolder folder(folder_ / "ck");
  fs::remove_all(folder_ / "ck");
  EXPECT_THAT([&] { folder.write(at_step(1)); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("No such file"), HasSubstr("there is no checkpoint before it"))));
  fs::create_directory(folder_ / "ck");
  folder.write(at_step(2));
  {
    const SmallFiles full(100);  // ends in the middle of the content
    EXPECT_THAT([&] { folder.write(at_step(3)); },
                ThrowsMessage<InputError>(HasSubstr("the checkpoint before it is whole")));
  }
  const std::string content = read_file(folder_ / "ck" / "checkpoint");
  EXPECT_EQ(decode(content, "x").step, 2);
}

}  // namespace
}  // namespace linerate::zoo
