// Signs of life in the store that a process group's ranks share. Private to comm/c10d.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/c10d/process_group.hpp"
#include "linerate/comm/liveness.hpp"

namespace linerate::comm {

/// A thread writes this rank's beat once a period. Only a rank that is stuck inside a collective
/// reads those of the others, so that the store's work grows with the number of ranks, not with its
/// square.
class StoreBeats {
 public:
  /// Waits until all ranks have come. `failed` is called once, from any thread, when the run has
  /// ended. Throws CommError naming the ranks that did not come within `start`.
  StoreBeats(C10dGroup& group, std::shared_ptr<Liveness> life, Clock::duration start,
             std::function<void()> failed);
  ~StoreBeats();
  StoreBeats(const StoreBeats&) = delete;
  StoreBeats& operator=(const StoreBeats&) = delete;

  /// Ends the run for every rank. The first reason counts, wherever it was said. Returns at once.
  void end_run(const std::string& reason);
  /// Why the run has ended, or why this rank has ended it: from end_run() on.
  std::optional<std::string> failure() const;
  /// Ends the run for every rank with this reason, or learns which one was the first.
  std::string ended_by(const std::string& reason);
  /// The same after a moment, in which a better reason than what this rank saw may arrive.
  std::string ended_by_or(const std::string& problem);
  /// Takes part in nothing more. When it returns, that has been said.
  void leave();

 private:
  void wait_for_all(Clock::duration limit);
  void loop();
  void serve();
  void publish();
  void look_at_peers();
  void set_failure(const std::string& reason);

  const std::shared_ptr<Liveness> life_;
  std::unique_ptr<SharedStore> store_;
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
