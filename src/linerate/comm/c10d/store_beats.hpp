// Signs of life in the store that a process group's ranks share: who is there, how far it has come,
// and what failed. Private to comm/c10d.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/c10d/process_group.hpp"
#include "linerate/comm/channel.hpp"
#include "linerate/comm/liveness.hpp"
#include "linerate/comm/turns.hpp"

namespace linerate::comm {

/// A thread writes this rank's report once a period. Only a rank that is stuck inside a collective
/// reads those of the others, so that the store's work grows with the number of ranks, not with its
/// square.
class StoreBeats {
 public:
  /// Waits until all ranks have come. `failed` is called once, from any thread, when the run has
  /// ended. Throws CommError naming the ranks that did not come within `start`.
  StoreBeats(C10dGroup& group, Clock::duration timeout, Clock::duration start,
             std::function<void()> failed);
  ~StoreBeats();
  StoreBeats(const StoreBeats&) = delete;
  StoreBeats& operator=(const StoreBeats&) = delete;

  /// One more collective with these ranks. Any thread, one at a time.
  void submitted(std::span<const int> members);
  /// This rank waits inside a collective from now on, until end(). `turns` has begun it.
  void begin(const Purpose& purpose, const Turns& turns);
  /// All of its members have refused it after comparing.
  void take_back(const Turns& turns);
  /// It compares before it runs.
  void compares();
  void moved();
  void end();
  void set_busy(std::optional<BusyNote> note);

  /// Ends the run for every rank. The first reason counts, wherever it was said. Returns at once.
  void end_run(const std::string& reason);
  /// Why the run has ended, or why this rank has ended it: from end_run() on.
  std::optional<std::string> failure() const;
  /// Ends the run for every rank with this reason, or learns which one was the first.
  std::string ended_by(const std::string& reason);
  /// The same after a moment, in which a better reason than what this rank saw may arrive.
  std::string ended_by_or(const std::string& problem);
  /// What this rank runs, and what `peer` last said that it does.
  std::string different_operations(const std::string& seen, int peer);
  /// Takes part in nothing more. When it returns, that has been said.
  void leave();

 private:
  /// What a rank says of itself to another: plain bytes.
  struct Line {
    static constexpr std::size_t kKept = 4;
    std::uint64_t submitted = 0, begun = 0;
    std::array<std::uint64_t, kKept> history{};  // [n % kKept]: of the first n collectives with it
  };
  struct Head;

  void wait_for_all(Clock::duration limit);
  void loop();
  void serve();
  void publish();
  void look_at_peers();
  std::optional<std::string> find_other_operation(int peer, const Head& head, const Line& theirs);
  void set_failure(const std::string& reason);
  std::string key(int rank) const;

  const int rank_, size_;
  const Clock::duration period_;
  std::unique_ptr<SharedStore> store_;
  std::function<void()> failed_;
  std::vector<std::atomic<std::uint64_t>> submitted_;

  mutable std::mutex mutex_;  // of everything below
  std::condition_variable wake_, said_;
  std::vector<Line> lines_;  // by rank: what it is told
  std::vector<int> members_;
  Begun prints_;
  bool inside_ = false, compares_ = false, left_ = false, stopping_ = false;
  std::uint64_t published_ = 0;  // reports
  bool dirty_ = false;
  std::optional<BusyNote> busy_;
  std::optional<std::string> wanted_end_, failure_;
  Liveness liveness_;
  std::vector<std::uint64_t> last_beat_;
  std::vector<bool> looked_;  // by rank, in this collective
  std::vector<Clock::time_point> differs_since_;
  Clock::time_point last_serve_;
  std::thread thread_;
};

}  // namespace linerate::comm
