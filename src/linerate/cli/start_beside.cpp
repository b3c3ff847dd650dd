#include "linerate/cli/start_beside.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "linerate/core/error.hpp"

namespace linerate::cli {

[[noreturn]] void start_beside(const std::string& program,
                               const std::vector<std::string>& arguments) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string path = (self.parent_path() / program).string();
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  throw UsageError(arguments.front() + ": cannot start " + path + ": " + std::strerror(errno) +
                   "; build with LibTorch (make build, or cmake -DLINERATE_WITH_TORCH=ON)");
}

}  // namespace linerate::cli
