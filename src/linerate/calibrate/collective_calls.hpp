// Memory and submission of the collectives that probes time: a kind and a size -> a pending Work.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/collective.hpp"

namespace linerate::calibrate {

/// Calls of f32 collectives up to one size, all on the same arrays of zeros. What is submitted must
/// be done before this goes.
class CollectiveCalls {
 public:
  CollectiveCalls(comm::Communicator& communicator, std::int64_t largest_bytes);

  /// The next size from `bytes` on that gives every rank the same whole number of elements.
  std::int64_t whole_blocks(std::int64_t bytes) const;
  /// `bytes`: a size of whole blocks up to the largest, in the convention of core/collective.hpp.
  /// Throws UsageError for a kind other than all-reduce, reduce-scatter, all-gather and broadcast.
  [[nodiscard]] comm::WorkPtr submit(Collective kind, std::int64_t bytes);

 private:
  comm::Communicator& communicator_;
  std::vector<float> whole_, part_;
};

}  // namespace linerate::calibrate
