// The file that replaces another one: exclusive, gone unless it was renamed into place. Private to
// core.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "linerate/core/descriptor.hpp"

namespace linerate {

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
