// linerate train: starts `linerate-torch`, which lies beside this program, with the same arguments;
// this one never loads LibTorch.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"

namespace linerate::cli {
namespace {

[[noreturn]] void start_beside(const std::string& program,
                               const std::vector<std::string>& arguments) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string path = (self.parent_path() / program).string();
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  throw UsageError("train: cannot start " + path + ": " + std::strerror(errno) +
                   "; build with LibTorch (make build, or cmake -DLINERATE_WITH_TORCH=ON)");
}

}  // namespace

void setup_train(CLI::App& app) {
  CLI::App* train =
      app.add_subcommand("train", "Train a network of the zoo data-parallel, and record the run.");
  train->set_help_flag();  // linerate-torch knows the options
  train->allow_extras();
  train->prefix_command();
  train->callback([train] {
    std::vector<std::string> arguments = {"train"};
    for (const std::string& one : train->remaining()) arguments.push_back(one);
    start_beside("linerate-torch", arguments);
  });
}

}  // namespace linerate::cli
