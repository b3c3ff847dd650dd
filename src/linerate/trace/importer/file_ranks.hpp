// Which rank each file of a job is of.
#pragma once

#include <string>
#include <vector>

namespace linerate::trace {

struct RankOfFile {
  int rank = -1;  // -1: neither the file nor its name says
  std::string file;
};

/// Throws InputError naming a file of several that states no rank, or that of another file unless
/// files of one rank may be joined.
void require_ranks(const std::vector<RankOfFile>& files, bool may_repeat = false);

}  // namespace linerate::trace
