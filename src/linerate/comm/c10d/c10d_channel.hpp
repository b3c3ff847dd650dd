// Signs of life in the store that a process group's ranks share. Private to comm/c10d.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/liveness.hpp"
#include "linerate/comm/transport.hpp"

// Only c10d_channel.cpp and tensor_group.cpp include c10d's headers, which take seven seconds to
// compile.
namespace c10d {
class ProcessGroup;
class Store;
class Work;
}  // namespace c10d

namespace linerate::comm {

using C10dGroup = c10::intrusive_ptr<::c10d::ProcessGroup>;
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

// Messages over a process group's point-to-point calls. Private to comm/c10d.

/// Messages of c10d can be waited for, but not asked whether they are complete; gloo's learn of
/// that only inside wait(). So threads have to wait.
///
/// There are two cases. If the schedule cannot go on without one certain transfer, the progress
/// thread waits for that transfer itself. If any transfer may come first, or sends wait for the
/// link, two threads wait. One waits for the sends and one for the receives, each in their order.
/// In a ring, for example, a rank has four receives and four sends in flight, and whichever is done
/// first wakes the progress thread.
class C10dChannel final : public Transport {
 public:
  /// `start`: how long the ranks may take to come together. Throws UsageError if the group has no
  /// CPU back end or no store.
  C10dChannel(C10dGroup group, Clock::duration timeout, Clock::duration start);
  ~C10dChannel() override;

  std::string name() const override { return backend_; }
  /// A message wakes three threads, so smaller chunks cost more than the caches into which they fit
  /// save. On a paced link smaller chunks pay, because gloo works on one while the next one leaves.
  std::size_t chunk_bytes() const override {
    return is_paced() ? std::size_t{512} << 10 : std::size_t{4} << 20;
  }
  std::size_t latency_bytes() const override { return std::size_t{32} << 10; }

  void poll() override { collect(); }
  void wait_some() override;
  void wait_for(const Transfer& transfer) override;
  bool can_read_peers() const override { return false; }
  bool read(int, std::uint64_t, void*, std::size_t) override { return false; }

  void abort(const std::string& reason) override { beats_.end_run(reason); }
  void begin(const Purpose& purpose) override;
  void leave() override { beats_.leave(); }

 private:
  struct Posted {
    c10::intrusive_ptr<::c10d::Work> work;
    PeerMessage message;
    bool handed = false;
    // Under the mutex:
    bool finished = false, aborted = false;
    std::optional<std::string> problem{};
  };

  void start(const PeerMessage& message) override;
  std::string end_messages(const std::string& reason, bool at_once) override;
  bool collect();
  [[noreturn]] void blame(const std::string& problem);
  void hand_over();
  Posted* next_to_wait_for(bool sends);
  void wait_in_order(bool sends);
  void wait_here(Posted& posted);
  void settle(Posted& posted);
  void abort_messages();
  void abandon();

  const C10dGroup group_;
  const std::string backend_;
  std::mutex mutex_;  // of the messages
  std::condition_variable posted_more_, finished_more_;
  std::list<Posted> posted_;
  std::thread sends_, receives_;  // which wait for those that are handed to them
  bool stopping_ = false, ended_ = false;
  StoreBeats beats_;  // last: its thread calls abort_messages()
};

}  // namespace linerate::comm
