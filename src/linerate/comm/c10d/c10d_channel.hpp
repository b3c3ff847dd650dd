// Signs of life in the store that a process group's ranks share. Private to comm/c10d.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/liveness.hpp"

// Only c10d_channel.cpp and tensor_group.cpp include c10d's headers, which take seven seconds to
// compile.
namespace c10d {
class Store;
}  // namespace c10d

namespace linerate::comm {

using C10dStore = c10::intrusive_ptr<::c10d::Store>;

/// A thread writes this rank's beat into the store once a period. Only a rank that is stuck inside
/// a collective reads the others' beats. So the store's work grows with the number of ranks, and
/// not with its square.
///
/// The end of the run is a key of the store that is set only if it does not exist. So ranks that
/// fail at the same time agree on one reason. For example rank 0 finds at 5.0 s that rank 2 is
/// silent, and rank 1 loses its connection to rank 2 at 5.1 s. Rank 0 has set the key; rank 1's
/// attempt returns rank 0's reason, and both throw it.
class StoreBeats {
 public:
  /// Waits until all ranks have come. The keys in the store are this object's alone. `failed` is
  /// called once, from any thread, when the run has ended. Throws CommError naming the ranks that
  /// did not come within `start`.
  StoreBeats(C10dStore store, std::shared_ptr<Liveness> life, Clock::duration start,
             std::function<void()> failed);
  ~StoreBeats();
  StoreBeats(const StoreBeats&) = delete;
  StoreBeats& operator=(const StoreBeats&) = delete;

  /// Ends the run for every rank. The first reason counts, wherever it was said. Returns at once.
  void end_run(const std::string& reason);
  /// Why the run has ended. From end_run() on it is at least the reason that this rank gave.
  std::optional<std::string> failure() const;
  /// Ends the run for every rank with this reason, unless another reason was the first. Returns the
  /// reason that counts. `patience`: how long it waits first, for a better reason to arrive.
  std::string ended_by(const std::string& reason, Clock::duration patience = {});
  /// Tells the others that this rank takes part in no more collectives. When it returns, that has
  /// been written.
  void leave();

 private:
  void wait_for_all(Clock::duration limit);
  void loop();
  void serve();
  void publish();
  void look_at_peers();
  void set_failure(const std::string& reason);

  const std::shared_ptr<Liveness> life_;
  const C10dStore store_;  // whose calls throw std::exception when it is gone
  std::function<void()> failed_;
  // Of the thread alone:
  std::uint64_t beat_ = 0;                // how many it has written
  std::vector<std::uint64_t> last_beat_;  // by rank: the last that it has read
  bool looked_ = false;                   // since this rank last moved

  mutable std::mutex mutex_;  // of everything below
  std::condition_variable wake_, said_;
  bool stopping_ = false, leaving_ = false;
  bool said_leave_ = false;  // or the store did not answer: nobody will hear of it
  std::optional<std::string> wanted_end_, failure_;
  std::thread thread_;
};

}  // namespace linerate::comm
