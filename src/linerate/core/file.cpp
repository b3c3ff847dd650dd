#include "linerate/core/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "linerate/core/error.hpp"

namespace linerate {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
  throw InputError(path.string(), std::string(what) + ": " + std::strerror(error));
}

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "cannot write", errno);
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(fd) != 0 && errno != EINVAL && errno != EROFS) fail(path, "cannot sync", errno);
}

bool is_plain_or_absent(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path))
    throw InputError(path.string(), "expected a file, found a folder");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, "cannot open", errno);
  std::string content;
  char block[1 << 16];
  while (in.read(block, sizeof block) || in.gcount() > 0)
    content.append(block, static_cast<std::size_t>(in.gcount()));
  if (in.bad()) fail(path, "cannot read", errno);
  return content;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  // A pipe or a terminal (/dev/stdout) cannot be renamed over: write straight into it.
  const bool rename = is_plain_or_absent(path);
  std::filesystem::path target = path;
  if (rename) target += ".part-" + std::to_string(::getpid());
  const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | (rename ? O_TRUNC : 0), 0644);
  if (fd < 0) fail(path, "cannot create", errno);
  try {
    write_all(fd, content, path);
  } catch (...) {
    ::close(fd);
    if (rename) ::unlink(target.c_str());
    throw;
  }
  ::close(fd);
  if (rename && ::rename(target.c_str(), path.c_str()) != 0)
    fail(path, "cannot rename into place", errno);
}

}  // namespace linerate
