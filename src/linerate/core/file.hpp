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

/// Throws InputError, as the functions above do: "<place>: <what>: <the system's reason>".
[[noreturn]] void fail_with_errno(const std::string& place, const std::string& what, int error);

}  // namespace linerate
