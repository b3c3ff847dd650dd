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
  static std::int64_t step_in(const fs::path& folder) {
    const std::string content = read_file(folder / "checkpoint");
    return decode(content, "x").step;
  }
};

TEST_F(Folder, IsMadeAndWhatIsWrittenComesBack) {
  CheckpointFolder folder(folder_ / "new" / "ck");
  EXPECT_NO_THROW(folder.require_none());
  folder.write(at_step(7));
  EXPECT_EQ(step_in(folder_ / "new" / "ck"), 7);
}

TEST_F(Folder, IsRefusedWhereItCannotBeOrIsAnothers) {
  const CheckpointFolder another(folder_);
  std::ofstream(folder_ / "ck") << "x";
  for (const auto& [place, words] :
       {std::pair{folder_ / "ck", std::string("ck: expected a folder, found a file")},
        // sysfs takes nobody's files, root's neither
        {"/sys/kernel", "/sys/kernel: trying to write"},
        {folder_, "another run keeps its checkpoints here (process " + std::to_string(::getpid()) +
                      " on host "},
        {folder_, "give another --checkpoint folder"}})
    EXPECT_THAT([&] { CheckpointFolder folder(place); },
                ThrowsMessage<InputError>(HasSubstr(words)));
}

TEST_F(Folder, WhatIsThereIsNamedAndNotOverwritten) {
  CheckpointFolder folder(folder_);
  folder.write(at_step(40));
  EXPECT_THAT([&] { folder.require_none(); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("found a checkpoint of mlp at step 40"),
                                              HasSubstr("--resume"), HasSubstr("--overwrite"))));
  std::ofstream(folder_ / "checkpoint") << "somebody's own";
  EXPECT_THAT([&] { folder.require_none(); },
              ThrowsMessage<UsageError>(HasSubstr("cannot be read as a checkpoint")));
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
  EXPECT_EQ(step_in(folder_ / "ck"), 2);
}

}  // namespace
}  // namespace linerate::zoo
