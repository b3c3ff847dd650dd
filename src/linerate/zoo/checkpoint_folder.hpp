// The place of a run's checkpoints: tried before the run starts, one run's at a time. No LibTorch
// here.
#pragma once

#include <filesystem>

#include "linerate/core/descriptor.hpp"
#include "linerate/zoo/checkpoint.hpp"

namespace linerate::zoo {

/// <folder>/checkpoint, and <folder>/lock, on which a run holds a lock (flock) for as long as this
/// object lives; the kernel drops it with the process. The file stays: removing it would let two
/// runs lock two files of one name.
class CheckpointFolder {
 public:
  /// Makes the folder if it is missing and tries to write into it. Throws InputError if that fails,
  /// or if another run has it, naming process and host.
  explicit CheckpointFolder(std::filesystem::path folder);

  std::filesystem::path file() const { return checkpoint_file(folder_); }
  /// Throws UsageError if there is a checkpoint, naming its model and step, readable or not.
  void require_none() const;
  /// Throws InputError that says whether one is left: the checkpoint before is whole then.
  void write(const Checkpoint& checkpoint);

 private:
  void lock();

  const std::filesystem::path folder_;
  Descriptor lock_;
};

}  // namespace linerate::zoo
