// Messages over a process group's point-to-point calls. Private to comm/c10d.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/c10d/process_group.hpp"
#include "linerate/comm/c10d/store_beats.hpp"
#include "linerate/comm/transport.hpp"

namespace linerate::comm {

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
  /// `start`: how long the ranks may take to come together.
  C10dChannel(std::unique_ptr<C10dGroup> group, Clock::duration timeout, Clock::duration start);
  ~C10dChannel() override;

  std::string name() const override { return group_->backend(); }
  /// A message wakes three threads, so smaller chunks cost more than the caches into which they fit
  /// save. On a paced link smaller chunks pay, because gloo works on one while the next one leaves.
  std::size_t chunk_bytes() const override {
    return is_paced() ? std::size_t{512} << 10 : std::size_t{4} << 20;
  }
  std::size_t latency_bytes() const override { return std::size_t{32} << 10; }

  void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) override;
  void poll() override { collect(); }
  void wait_some() override;
  void wait_for(const Transfer& transfer) override;
  bool can_read_peers() const override { return false; }
  bool read(int, std::uint64_t, void*, std::size_t) override { return false; }
  [[noreturn]] void fail(const std::string& reason) override;

  void abort(const std::string& reason) override { beats_.end_run(reason); }
  void begin(const Purpose& purpose) override;
  void give_up(const std::string& reason) override;
  void leave() override { beats_.leave(); }

 private:
  struct Posted {
    std::unique_ptr<C10dMessage> message;
    Transfer* transfer = nullptr;
    int peer = 0;
    bool sends = false, handed = false;
    // Under the mutex:
    bool finished = false, aborted = false;
    std::optional<std::string> problem{};
  };
  /// A thread that waits for messages in their order.
  struct Waiter {
    std::deque<Posted*> queue;  // under the mutex
    std::thread thread{};
  };

  void start_send(int peer, const void* data, std::size_t bytes, std::uint64_t tag,
                  Transfer& transfer) override;
  void post(std::unique_ptr<C10dMessage> message, int peer, Transfer& transfer, bool sends);
  bool collect();
  void hand_over();
  void wait_in_order(Waiter& waiter);
  void wait_here(Posted& posted);
  void settle(Posted& posted);
  void abort_messages();
  void abandon();

  std::unique_ptr<C10dGroup> group_;
  std::mutex mutex_;  // of the messages
  std::condition_variable posted_more_, finished_more_;
  std::list<Posted> posted_;
  Waiter sends_, receives_;
  bool stopping_ = false, ended_ = false;
  StoreBeats beats_;  // last: its thread calls abort_messages()
};

}  // namespace linerate::comm
