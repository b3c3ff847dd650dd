// Private: how much of an all-to-all with uneven splits crosses the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// For one rank's trace, which must outlive it. Counts what stayed unknown.
///
/// Example. Rank 1 of three sends rows in parts of 2, 4 and 6 and receives parts of 1, 4 and 3. Its
/// own part of 4 stays on the rank. So it sends 8 rows and receives 4, and the link carries 8.
class UnevenAllToAll {
 public:
  explicit UnevenAllToAll(const KinetoTrace& trace) : trace_(trace) {}

  /// The larger of what the rank sends and receives in bytes, its own part left out. -1: the splits
  /// are even, or unknown.
  std::int64_t bus_bytes_of(const CollectiveArgs& args);
  /// One note for each reason why splits stayed unknown.
  std::vector<std::string> notes() const;

 private:
  std::optional<std::size_t> own_position(const CollectiveArgs& args) const;

  const KinetoTrace& trace_;
  std::size_t cut_ = 0, unplaced_ = 0;
};

}  // namespace linerate::trace
