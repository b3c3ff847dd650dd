// One run keeps its checkpoints in a folder, and no other may: two runs would replace each other's.
// The lock says so before the first step.
#include "linerate/zoo/checkpoint_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"

namespace linerate::zoo {
namespace {

// "process 4711 on host node3", for the message to another run.
std::string this_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  return "process " + std::to_string(::getpid()) + " on host " + host.data();
}

/// "mlp at step 40", or why that is unknown.
std::string what_is_in(const std::filesystem::path& file) {
  try {
    const std::string content = read_file(file);
    const Checkpoint c = decode(content, file.string());
    const auto model = c.settings.find("model");
    return "a checkpoint of " + (model == c.settings.end() ? "some model" : model->second) +
           " at step " + std::to_string(c.step);
  } catch (const InputError& e) {
    return "a file that cannot be read as a checkpoint (" + std::string(e.what()) + ")";
  }
}

}  // namespace

// Made and tried at once: a run must not find after an hour that it cannot write here.
CheckpointFolder::CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  make_and_try_folder(folder_);
  lock();
}

// The lock is the kernel's (flock), so it ends with the process, however that ends. The file's
// content only tells people who holds it. Some file systems have no locks; then a warning is all.
void CheckpointFolder::lock() {
  const std::filesystem::path path = folder_ / "lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.open())
    throw InputError(path.string(), "cannot open: " + std::string(std::strerror(errno)));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      throw InputError(folder_.string(),
                       "another run keeps its checkpoints here (" +
                           std::string(trim(read_file(path))) +
                           "); wait until it has ended, or give another --checkpoint folder");
    return log::warning(folder_.string() + ": its file system knows no locks (" +
                        std::strerror(errno) +
                        "); make sure that no other run keeps its checkpoints here");
  }
  const std::string owner = this_process() + "\n";
  if (::ftruncate(file.get(), 0) != 0 ||
      ::write(file.get(), owner.data(), owner.size()) != static_cast<ssize_t>(owner.size()))
    throw InputError(path.string(), "cannot write: " + std::string(std::strerror(errno)));
  lock_ = std::move(file);
}

// For a run that starts anew: it would replace what is there at its first checkpoint.
void CheckpointFolder::require_none() const {
  if (!std::filesystem::exists(file())) return;
  throw UsageError("--checkpoint " + folder_.string() + ": found " + what_is_in(file()) +
                   "; continue it with --resume, give another folder, or replace it with "
                   "--overwrite");
}

// A new file takes the old one's place in one step, so whatever happens one of them is whole.
void CheckpointFolder::write(const Checkpoint& checkpoint) {
  try {
    write_file_atomically(file(), encode(checkpoint));
  } catch (const InputError& e) {
    std::error_code ignored;
    throw InputError(
        std::string(e.what()) +
        (std::filesystem::exists(file(), ignored)
             ? "; the checkpoint before it is whole; solve this, then go on with --resume"
             : "; there is no checkpoint before it"));
  }
}

}  // namespace linerate::zoo
