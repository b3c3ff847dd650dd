#include "linerate/comm/expected_ranks.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::comm {

void require_ranks(int found, std::optional<int> expected) {
  if (!expected || *expected == found) return;
  throw on_every_rank(InputError(
      "ranks", fmt::format("expected a job of {}, found {}; start it with: mpirun -n {} ...",
                           *expected, found, *expected)));
}

}  // namespace linerate::comm
