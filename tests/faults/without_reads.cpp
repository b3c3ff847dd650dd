// Runs a command that may not read other processes' memory: without_reads COMMAND [ARGUMENT ...]
#include <cstdio>

#include "faults/deny_reads.hpp"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (!deny_reads()) {
    std::perror("without_reads: seccomp");
    return 77;
  }
  execvp(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}
