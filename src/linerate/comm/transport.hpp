// When a message has left over a slow link (set_link). Private to comm.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/liveness.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/units.hpp"

namespace linerate::comm {

/// The link of one rank. It carries one message after the other, each as long as its frames take.
///
/// A message that is ready finds the link busy or idle. On a busy link it waits for its turn, so a
/// rank that wakes late loses nothing. An idle link saves up to half a millisecond for what comes
/// next, as the token bucket of tools/lab does at 1 Gbit/s. For example, at 1 Gbit/s a chunk of 256
/// KiB takes 2.2 ms. Of three that are ready at 0 on an idle link, the last byte has left at 1.7,
/// 3.9 and 6.1 ms.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kSaved{500};

  explicit Pacer(BytesPerSecond rate) : rate_(rate) {}
  /// When the last byte has left of a message that is ready now. Any thread.
  Clock::time_point departure(std::size_t bytes, Clock::time_point now);

 private:
  const BytesPerSecond rate_;
  std::mutex mutex_;
  Clock::time_point free_at_ = Clock::time_point::min();
};

/// The link that all of this process's communicators send over; null without one.
std::shared_ptr<Pacer> pacer_of_process();
/// A link of its own, for a rank that is a thread; null without one.
std::shared_ptr<Pacer> pacer_of_thread();

// Point-to-point messages between all ranks of the job, as the owner of the progress thread sees
// them. Two ranks have in common the sequence of the collectives that both take part in, of
// whatever group. Liveness counts those for each peer, and the counts tell messages apart.

/// A message in flight. Neither this object nor the message's memory may move until `done`.
struct Transfer {
  bool done = true;
};

/// A message to or from a peer.
struct PeerMessage {
  bool sends = false;  // else it is received
  int peer = 0;
  void* data = nullptr;  // only read if it is sent
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
  Transfer* transfer = nullptr;
};

/// Messages between two ranks arrive in the order of sending. A call that waits throws CommError,
/// naming the ranks at fault, if a peer is gone, silent or late. All posted messages are then
/// dropped (docs/communication.md). One thread owns it.
class Transport {
 public:
  /// `tag_bits`: of a message's tag, at least 15, which MPI promises. `pacer`: the link that this
  /// rank sends over; null: none.
  Transport(std::shared_ptr<Liveness> life, int tag_bits, std::shared_ptr<Pacer> pacer)
      : life_(std::move(life)), tag_bits_(tag_bits), pacer_(std::move(pacer)) {}
  virtual ~Transport() = default;

  virtual std::string name() const = 0;  // as Communicator::transport
  int rank() const { return life_->rank(); }
  int size() const { return life_->size(); }
  /// Bytes of one message of a large collective.
  virtual std::size_t chunk_bytes() const = 0;
  /// All-reduces up to this size exchange whole buffers.
  virtual std::size_t latency_bytes() const = 0;

  void send(int peer, const void* data, std::size_t bytes, Transfer& transfer);
  void receive(int peer, void* data, std::size_t bytes, Transfer& transfer);
  /// Marks finished transfers without waiting.
  virtual void poll() = 0;
  /// Sleeps until a transfer posted earlier has finished; may return early.
  virtual void wait_some() = 0;
  /// Sleeps until this transfer has finished, without which the caller cannot go on.
  virtual void wait_for(const Transfer& transfer) {
    while (!transfer.done) wait_some();
  }

  /// Whether read() worked between all ranks when the job started. The same answer on each rank.
  virtual bool can_read_peers() const = 0;
  /// Copies out of another rank's memory, at an address that the other rank has sent and keeps
  /// valid. Both sides count it as traffic, because schedules that read are symmetric. Returns
  /// false, with garbage in `into`, if this process may not read (any more); then no rank is at
  /// fault.
  [[nodiscard]] virtual bool read(int peer, std::uint64_t address, void* into,
                                  std::size_t bytes) = 0;
  /// Ends the run for every rank: throws CommError with this reason, or with the first one.
  [[noreturn]] void fail(const std::string& reason);

  /// This rank has submitted one more collective with these ranks. Any thread.
  void submitted(std::span<const int> members) { life_->submitted(members); }
  /// From now on the peers know that this rank is busy, or no longer. Any thread.
  void set_busy(std::optional<BusyNote> note) { life_->set_busy(std::move(note)); }
  /// Ends the run for every rank with this reason, as soon as the owner looks. Any thread.
  virtual void abort(const std::string& reason) = 0;

  /// Starts a collective: the messages until end() are its own. The peers' counts move on here.
  virtual void begin(const Purpose& purpose);
  /// The comparison before the collective is over. If `alike`, its payload comes next; else all
  /// members refuse it.
  void compared(bool alike);
  void end() { life_->end(); }
  /// An exception that is not fail()'s has left a collective. Ends the run for every rank, and from
  /// here on no posted memory is touched.
  void give_up(const std::string& reason) { end_messages(reason, true); }

  /// While no collective runs: how long the owner may sleep before it calls service() again.
  /// service() throws nothing; the next collective tells what failed.
  virtual std::chrono::nanoseconds idle_period() const { return std::chrono::hours(1); }
  virtual void service() {}
  /// This rank takes part in nothing more.
  virtual void leave() = 0;

  /// Any thread.
  Traffic traffic() const {
    return {{sent_bytes_.load(std::memory_order_relaxed)},
            {received_bytes_.load(std::memory_order_relaxed)}};
  }

 protected:
  /// Hands a message to what carries it.
  virtual void start(const PeerMessage& message) = 0;
  /// Ends the run for every rank. When this returns, no posted memory is touched. Returns the
  /// reason that counts. `at_once`: the memory is gone already, so nothing may wait for it.
  virtual std::string end_messages(const std::string& reason, bool at_once) = 0;
  /// Starts the sends that have waited for the link long enough. A transport that looks for
  /// finished transfers calls it first, and sleeps no longer than until next_departure().
  void start_due_sends();
  std::optional<Clock::time_point> next_departure() const;
  /// `wake`, or the next departure if that comes first.
  Clock::time_point or_next_departure(Clock::time_point wake) const;
  /// Drops sends that wait for the link, because the run is over.
  void drop_waiting_sends() { waiting_.clear(); }
  bool is_paced() const { return pacer_ != nullptr; }

  void moved() { life_->moved(Clock::now()); }
  void count_read(std::size_t bytes) {
    sent_bytes_ += static_cast<std::int64_t>(bytes);
    received_bytes_ += static_cast<std::int64_t>(bytes);
  }

  const std::shared_ptr<Liveness> life_;
  Purpose purpose_;

 private:
  /// The tag of a message: a hash of its collective, in as many bits as the transport has for a
  /// tag. A receive meets only messages of its own tag. So a message of another collective lands in
  /// its memory only if two hashes are the same by chance. They have 27 bits, because Open MPI's
  /// tags have 31.
  ///
  /// The size of a message does not protect. Over shared memory Open MPI 4.1.4 copies all that was
  /// sent, even if the receive has less room (single-copy GET of vader, above 4 KiB). Its TCP does
  /// so above the eager limit.
  ///
  /// Payload: [history | call, 3 bits | 0]. Comparison of checked mode: [turn | 1]. Comparisons of
  /// different collectives do meet, and then the error names both sides.
  std::uint64_t tag(int peer) const;
  /// Bytes of comparisons are no payload.
  void count(std::atomic<std::int64_t>& bytes, std::size_t more) {
    if (!comparing_) bytes += static_cast<std::int64_t>(more);
  }

  /// A send that the link has not carried yet.
  struct WaitingSend {
    Clock::time_point departure;
    PeerMessage message;
  };

  const int tag_bits_;
  const std::shared_ptr<Pacer> pacer_;
  std::deque<WaitingSend> waiting_;  // in the order of departure
  bool comparing_ = false;
  std::atomic<std::int64_t> sent_bytes_{0}, received_bytes_{0};
};

/// The ranks of a communicator, numbered anew. Schedules send and receive over this. For example
/// ranks 1 and 3 of four form a group. Rank 3 of the job is rank 1 here, and a send to peer 0 goes
/// to rank 1 of the job.
class Channel {
 public:
  /// Rank i here is rank members[i] of the job; `rank` is this one's i. Both outlive the channel.
  Channel(Transport& transport, std::span<const int> members, int rank)
      : transport_(transport), members_(members), rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  std::size_t chunk_bytes() const { return transport_.chunk_bytes(); }
  std::size_t latency_bytes() const { return transport_.latency_bytes(); }

  void send(int peer, const void* data, std::size_t bytes, Transfer& transfer) {
    transport_.send(member(peer), data, bytes, transfer);
  }
  void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) {
    transport_.receive(member(peer), data, bytes, transfer);
  }
  void poll() { transport_.poll(); }
  void wait_some() { transport_.wait_some(); }
  void wait_for(const Transfer& transfer) { transport_.wait_for(transfer); }

  /// Whether read() works between all ranks. The answer is the same on each rank.
  bool reads_peers() const { return reading_ && transport_.can_read_peers(); }
  /// All ranks have agreed in a collective that it no longer works. Ranks outside of this group may
  /// go on reading.
  void stop_reading() { reading_ = false; }
  [[nodiscard]] bool read(int peer, std::uint64_t address, void* into, std::size_t bytes) {
    return transport_.read(member(peer), address, into, bytes);
  }
  [[noreturn]] void fail(const std::string& reason) { transport_.fail(reason); }

 private:
  int member(int rank) const { return members_[to_index(rank)]; }

  Transport& transport_;
  std::span<const int> members_;
  int rank_;
  bool reading_ = true;
};

// Times that a caller states, as durations of the clock.

/// A time as a duration of the clock. Throws UsageError, naming `what`, unless it lies between a
/// millisecond and 1e9 s. Zero, negative times and NaN would end every collective at once, and a
/// larger one would overflow the clock.
[[nodiscard]] Clock::duration clock_time(Duration time, const std::string& what);

/// How long ranks may take to come together: `caller`'s start_timeout, as clock_time. Without it,
/// the timeout, and at least half a minute.
[[nodiscard]] Clock::duration start_time(std::optional<Duration> stated, Clock::duration timeout,
                                         const std::string& caller);

}  // namespace linerate::comm
