// Reads files, and writes them so that a reader never sees half of one. The content goes to a
// temporary file in the same folder, which is then renamed over the target (temporary_file.hpp).
// Links are followed first, because a rename would replace the link. Pipes and terminals cannot be
// renamed over, so they are written into.
#include "linerate/core/file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>

#include "linerate/core/descriptor.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/temporary_file.hpp"

namespace linerate {
namespace {

namespace fs = std::filesystem;

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

void write_into(const Target& target, std::string_view content, const std::string& place) {
  std::fflush(stdout);  // what was printed before comes before
  const Descriptor stream(target.own_descriptor
                              ? ::fcntl(*target.own_descriptor, F_DUPFD_CLOEXEC, 0)
                              : ::open(target.path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!stream.open()) fail_with_errno(place, "cannot open", errno);
  write_all(stream.get(), content, place);
}

}  // namespace

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
  TemporaryFile::sweep(target.path);
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
  TemporaryFile::sweep(trial);
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
