#include "linerate/trace/importer/file_ranks.hpp"

#include <fmt/format.h>

#include <map>

#include "linerate/core/error.hpp"

namespace linerate::trace {

void require_ranks(const std::vector<RankOfFile>& files, bool may_repeat) {
  if (files.size() < 2) return;
  std::map<int, std::string> seen;
  for (const auto& [rank, file] : files) {
    if (rank < 0)
      throw InputError(file,
                       "expected its rank in distributedInfo or in the file name, found neither; "
                       "name the files rank0..., rank1..., or worker0...");
    if (const auto [other, fresh] = seen.try_emplace(rank, file); !fresh && !may_repeat)
      throw InputError(file, fmt::format("is of rank {}, and so is {}; give each rank's trace once",
                                         rank, other->second));
  }
}

}  // namespace linerate::trace
