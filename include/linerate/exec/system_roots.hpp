// Where the kernel's counters are.
#pragma once

#include <filesystem>

namespace linerate::exec {

/// Where to read; tests point it at a folder of their own.
struct SystemRoots {
  std::filesystem::path proc = "/proc";          // of processes
  std::filesystem::path net = "/sys/class/net";  // of interfaces
};

}  // namespace linerate::exec
