// What measured times of collectives leave open.
#pragma once

#include <cstddef>
#include <optional>

namespace linerate::calibrate {

struct FitOptions {
  int ranks = 0;           // if the log does not say; 0: it must
  int ranks_per_node = 0;  // of the machines; 0: as the logs list their hosts
  std::size_t fewest_sizes =
      3;  // of a table; of fewer, at least 1, straight joins of what is there
  /// Of the slowest link, per direction. Given: a fit that beats it is rejected (its units are
  /// wrong).
  std::optional<double> line_rate_bytes_per_s = {};
};

}  // namespace linerate::calibrate
