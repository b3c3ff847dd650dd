// exec, not fork: the new program has this one's process number, signals and streams. So mpirun, a
// batch system or a debugger that started `linerate` has `linerate-torch` in its hands.
#include "linerate/cli/start_beside.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"

namespace linerate::cli {

// The arguments are read back from the kernel, as CLI11 has taken them apart by now. The path is
// that of the running file: a symbolic link to `linerate` elsewhere finds its neighbour all the
// same.
[[noreturn]] void start_beside(const std::string& program) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::string path = (self.parent_path() / program).string();
  std::string line = read_file("/proc/self/cmdline");  // each argument ends with a zero
  std::vector<char*> argv;
  for (std::size_t at = 0; at < line.size(); at += std::strlen(&line[at]) + 1)
    argv.push_back(&line[at]);
  argv.front() = path.data();
  const std::string verb = argv.at(1);
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  throw UsageError(verb + ": cannot start " + path + ": " + std::strerror(errno) +
                   "; build with LibTorch (make build, or cmake -DLINERATE_WITH_TORCH=ON)");
}

}  // namespace linerate::cli
