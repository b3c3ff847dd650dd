#include "linerate/cli/launcher.hpp"

#include <cstdlib>

namespace linerate::cli {

std::optional<int> launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return std::nullopt;
}

}  // namespace linerate::cli
