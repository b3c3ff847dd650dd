// One world at a time in a process: each has a thread of its own that calls MPI, and
// MPI_THREAD_SERIALIZED allows but one. Private to comm/mpi.
#pragma once

#include <utility>

namespace linerate::comm {

/// The right to be the world of this process, given back by the destructor.
class OneWorld {
 public:
  /// Throws UsageError while another one has it.
  OneWorld();
  OneWorld(OneWorld&& other) noexcept : mine_(std::exchange(other.mine_, false)) {}
  OneWorld& operator=(OneWorld&&) = delete;
  ~OneWorld();

  /// Whether a world is being destroyed on another thread.
  static bool closing();
  /// The world that exists has ended its thread and no longer calls MPI.
  static void set_quiet();

 private:
  bool mine_ = true;
};

}  // namespace linerate::comm
