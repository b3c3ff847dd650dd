// Reads and writes whole files, or nothing.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace linerate {

/// Throws InputError naming the file and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// Replaces a file. Readers see the old file or the new one, whole, at any moment, kill -9 and loss
/// of power included. The content goes into an exclusive temporary file next to `path`, which is
/// synced and renamed over it. Then the folder is synced. The old file's mode is kept. A symbolic
/// link stays one, and its target is replaced. Pipes, terminals and /dev/stdout are written into
/// directly.
///
/// Throws InputError; then the old file is as it was, and no temporary file is left. The next write
/// of the same file removes temporary files of writers that were killed. A file whose writer lives,
/// on whatever host, is not touched, because a writer has a lock on its own.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// Makes `folder` and those above it if they are missing, writes a file into it and removes it
/// again. Throws InputError naming the folder and the system's reason.
void make_and_try_folder(const std::filesystem::path& folder);

/// Fails now if write_file_atomically(path) would fail at the end of a long run: tries the folder
/// of `path` as above. Does nothing for a pipe or a terminal. Throws InputError.
void make_and_try_folder_of(const std::filesystem::path& path);

// An open file of the system that is closed once.

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (open()) ::close(fd_);
  }

  bool open() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

// The file that replaces another one: exclusive, gone unless it was renamed into place. Private to
// core.

/// "<name>.part-<16 hexadecimal digits>" in the target's folder. Its writer has a lock (flock) on
/// it, which the kernel drops when the process is gone. A process number in the name could not tell
/// across containers and hosts if the writer lives, and is given to other processes later.
class TemporaryFile {
 public:
  /// Has the mode of `target` if that exists, else 0644 less the umask. `place` names it in errors.
  /// Throws InputError.
  TemporaryFile(std::filesystem::path target, std::string place);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// Throws InputError.
  void write(std::string_view content);
  /// Synced before, and its folder after. Throws InputError.
  void rename_over_target();

  /// Removes those whose writers are gone.
  static void sweep(const std::filesystem::path& target);

 private:
  void create(unsigned mode);
  bool is_there() const;

  const std::filesystem::path target_;
  const std::string place_;
  std::filesystem::path path_;
  Descriptor file_;
  bool renamed_ = false;
};

/// Throws InputError, as the functions above do: "<place>: <what>: <the system's reason>".
[[noreturn]] void fail_with_errno(const std::string& place, const std::string& what, int error);
/// All of it, interrupted or not.
void write_all(int fd, std::string_view content, const std::string& place);
/// The path without its last name; "." if that is all.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace linerate
