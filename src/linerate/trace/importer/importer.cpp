#include "linerate/trace/importer/importer.hpp"

#include <utility>

#include "linerate/core/error.hpp"

namespace linerate::trace {

Job only_job(std::vector<FilePart> parts) {
  if (parts.size() > 1) refuse_mixture();
  return std::any_cast<Job>(std::move(parts.front().content));
}

void refuse_mixture() {
  throw UsageError(
      "expected one timeline, or the traces of all ranks of one job in one format (with their host "
      "execution traces, or their process groups), found a mixture");
}

}  // namespace linerate::trace
