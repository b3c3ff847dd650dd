// A training state as one file: settings, position and named tensors, with a hash over all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/file.hpp"
#include "linerate/zoo/measurement.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

/// A training's state. Random numbers need no state of their own: every stream is keyed by (seed,
/// step, rank), so the position says all.
struct Checkpoint {
  std::map<std::string, std::string> settings;  // what must agree with the run that resumes
  std::int64_t epoch = 0;
  std::int64_t step_in_epoch = 0;
  std::int64_t step = 0;  // since the start of training
  torch_adapter::NamedTensors tensors;
};

/// A line with format and hash, then an archive of LibTorch.
std::string encode(const Checkpoint& checkpoint);
/// `place` names the file. Throws InputError for anything cut off, damaged, foreign or of an older
/// format.
Checkpoint decode(std::string_view content, const std::string& place);

/// <folder>/checkpoint
std::filesystem::path checkpoint_file(const std::filesystem::path& folder);

// The place of a run's checkpoints: tried before the run starts, one run's at a time.

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
  const std::filesystem::path folder_;
  Descriptor lock_;
};

// Between files and ranks.

/// The file as rank 0 reads it, on every rank; absent if it does not exist. Rank 0's InputError is
/// thrown everywhere. Collective.
std::optional<std::string> read_for_all(comm::Communicator& communicator,
                                        const std::filesystem::path& file);

/// Writes Timeline and Workload of a recorded run.
void save_measurement(const Measurement::Result& result, const TrainOptions& options);

// What makes two runs the same run. It is compared over ranks before the first step, and with a
// checkpoint on --resume.

enum class OnResume {
  same,   // changes results: another value is refused
  noted,  // changes roundings, or what dropout and batch norm see: people are told
  free    // changes neither; ranks must agree on it since it says which collectives they run
};

/// One property of a run. Numbers are written so that they read back exactly.
struct Setting {
  std::string key;
  std::string value;
  std::string option;  // that sets it: "--lr"
  OnResume on_resume = OnResume::same;
};
using Settings = std::vector<Setting>;

/// "key value", one a line, for comm::require_same.
std::vector<std::string> lines_of(const Settings& settings);

/// Those a checkpoint keeps: all but the free ones.
std::map<std::string, std::string> kept(const Settings& settings);

/// Notes for people who resume with `now` from a checkpoint that was written with `then`; `place`
/// names its file. Includes keys that an older checkpoint lacks. Throws UsageError with every
/// setting that must not change and did.
std::vector<std::string> notes_on_resume(const Settings& now,
                                         const std::map<std::string, std::string>& then,
                                         const std::string& place);

}  // namespace linerate::zoo
