// Reads files, and writes them so that a reader never sees half of one. The content goes to a
// temporary file in the same folder, which is then renamed over the target.
// Links are followed first, because a rename would replace the link. Pipes and terminals cannot be
// renamed over, so they are written into.
#include "linerate/core/file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate {
namespace {

namespace fs = std::filesystem;

/// The path without its last name; "." if that is all.
fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// The target of a path: a file that is replaced, or a stream that is written into.
struct Target {
  fs::path path;                        // no symbolic link
  bool stream = false;                  // a pipe, a terminal: cannot be renamed over
  std::optional<int> own_descriptor{};  // of /dev/stdout, /dev/fd/N
};

/// The descriptor of a link such as /dev/stdout, which leads to /proc/self/fd/1, and that to the
/// file to which it was redirected. Replacing that file would take it away from the process that
/// has it open.
std::optional<int> own_descriptor(const fs::path& link) {
  std::error_code none;
  const fs::path folder = fs::canonical(folder_of(link), none);
  if (none || folder != fs::canonical("/proc/self/fd", none)) return std::nullopt;
  return std::stoi(link.filename().string());
}

/// Follows the links of a path. Throws InputError for links in a circle.
Target target_of(const fs::path& given) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  fs::path path = given;
  std::error_code ignored;
  for (int links = 0; fs::is_symlink(path, ignored); ++links) {
    if (links == kMostLinks) fail_with_errno(given.string(), "cannot create", ELOOP);
    if (const auto own = own_descriptor(path)) return {path, true, own};
    path = folder_of(path) / fs::read_symlink(path, ignored);
  }
  const auto status = fs::status(path, ignored);
  return {path, fs::exists(status) && !fs::is_regular_file(status)};
}

constexpr std::string_view kMark = ".part-";
constexpr std::size_t kDigits = 16, kLongestName = 255;

/// The beginning of the temporary file's name. A long name is cut, so that there is room for the
/// mark.
std::string prefix_of(const fs::path& target) {
  return target.filename().string().substr(0, kLongestName - kMark.size() - kDigits) +
         std::string(kMark);
}

bool is_temporary_name(std::string_view name, std::string_view prefix) {
  return name.size() == prefix.size() + kDigits && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == name.npos;
}

std::string random_digits() {
  std::random_device random;
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%08x%08x", random(), random());
  return digits;
}

/// Syncs a descriptor. Some file systems, and all pipes, have no sync, which is no error.
bool sync(int fd) {
  return ::fsync(fd) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP ||
         errno == ENOSYS;
}

/// All of it, interrupted or not.
void write_all(int fd, std::string_view content, const std::string& place) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno(place, "cannot write", errno);
    content.remove_prefix(to_index(n));
  }
  if (!sync(fd)) fail_with_errno(place, "cannot sync", errno);
}

void write_into(const Target& target, std::string_view content, const std::string& place) {
  std::fflush(stdout);  // what was printed before comes before
  const Descriptor stream(target.own_descriptor
                              ? ::fcntl(*target.own_descriptor, F_DUPFD_CLOEXEC, 0)
                              : ::open(target.path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!stream.open()) fail_with_errno(place, "cannot open", errno);
  write_all(stream.get(), content, place);
}

/// The file that replaces another one: exclusive, gone unless it was renamed into place.
///
/// "<name>.part-<16 hexadecimal digits>" in the target's folder. Its writer has a lock (flock) on
/// it, which the kernel drops when the process is gone. A process number in the name could not tell
/// across containers and hosts if the writer lives, and is given to other processes later.
class TemporaryFile {
 public:
  /// Has the mode of `target` if that exists, else 0644 less the umask. `place` names it in errors.
  TemporaryFile(fs::path target, std::string place)
      : target_(std::move(target)), place_(std::move(place)) {
    struct ::stat old {};
    const bool there = ::stat(target_.c_str(), &old) == 0;
    do {
      create(there ? old.st_mode & 0777 : 0644);
      // A sweep by another process may have removed the file before it was locked.
    } while (!is_there());
    // If the file system has no modes, there is none to keep.
    if (there) static_cast<void>(::fchmod(file_.get(), old.st_mode & 07777));
  }
  ~TemporaryFile() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view content) { write_all(file_.get(), content, place_); }

  /// Synced before, and its folder after.
  void rename_over_target() {
    // Still open, so that its lock is held until its name is gone.
    if (::rename(path_.c_str(), target_.c_str()) != 0)
      fail_with_errno(place_, "cannot rename into place", errno);
    renamed_ = true;
    const Descriptor folder(::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // A folder that may be written to but not read cannot be opened, nor synced.
    if (folder.open() && !sync(folder.get()))
      fail_with_errno(place_, "cannot sync its folder", errno);
  }

 private:
  void create(unsigned mode) {
    int fd = -1;
    do {
      path_ = folder_of(target_) / (prefix_of(target_) + random_digits());
      fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EEXIST);
    if (fd < 0) fail_with_errno(place_, "cannot create", errno);
    file_ = Descriptor(fd);
    // Fails if the file system has no locks; then no process sweeps there either.
    static_cast<void>(::flock(fd, LOCK_EX));
  }
  bool is_there() const {
    struct ::stat status {};
    return ::fstat(file_.get(), &status) == 0 && status.st_nlink > 0;
  }

  const fs::path target_;
  const std::string place_;
  fs::path path_;
  Descriptor file_;
  bool renamed_ = false;
};

/// Removes the temporary files of a target whose lock is free. For example writer A was killed: the
/// kernel dropped its lock, so B's sweep takes the lock and removes the file. Writer C still has
/// its lock, so B leaves C's file alone.
void sweep(const fs::path& target) {
  std::error_code ignored;
  const std::string prefix = prefix_of(target);
  fs::directory_iterator entry(folder_of(target), ignored);
  for (; !ignored && entry != fs::directory_iterator(); entry.increment(ignored)) {
    const fs::path path = entry->path();
    if (!is_temporary_name(path.filename().string(), prefix)) continue;
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

}  // namespace

void fail_with_errno(const std::string& place, const std::string& what, int error) {
  std::string where;
  std::error_code ignored;
  if (error == ENOENT && !place.starts_with('/'))
    where = "; looked in " + fs::current_path(ignored).string();
  throw InputError(place, what + ": " + std::strerror(error) + where);
}

std::string read_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    throw InputError(path.string(), "expected a file, found a folder");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_with_errno(path.string(), "cannot open", errno);
  std::string content;
  char block[1 << 16];
  while (in.read(block, sizeof block) || in.gcount() > 0)
    content.append(block, to_index(in.gcount()));
  if (in.bad()) fail_with_errno(path.string(), "cannot read", errno);
  return content;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const Target target = target_of(path);
  if (target.stream) return write_into(target, content, path.string());
  sweep(target.path);
  TemporaryFile temporary(target.path, path.string());
  temporary.write(content);
  temporary.rename_over_target();
}

void make_and_try_folder(const fs::path& folder) {
  std::error_code error, ignored;
  const fs::path place = folder.empty() ? fs::path(".") : folder;
  fs::create_directories(place, error);
  if (error) {
    if (const auto status = fs::status(place, ignored);
        fs::exists(status) && !fs::is_directory(status))
      throw InputError(place.string(), "expected a folder, found a file; give another one");
    fail_with_errno(place.string(), "cannot make the folder", error.value());
  }
  const fs::path trial = place / "trial";
  sweep(trial);
  TemporaryFile(trial, place.string() + ": trying to write into this folder").write("linerate\n");
}

void make_and_try_folder_of(const fs::path& path) {
  const Target target = target_of(path);
  std::error_code ignored;
  if (fs::is_directory(target.path, ignored))
    throw InputError(path.string(), "expected a file, found a folder; give a name inside it");
  if (!target.stream) make_and_try_folder(folder_of(target.path));
}

}  // namespace linerate
