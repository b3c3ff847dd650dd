// Point-to-point messages between ranks. Schedules see a transport only as a Channel. One thread
// owns it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/units.hpp"

namespace linerate::comm {

/// A message in flight. Neither this object nor the message's memory may move until `done`.
struct Transfer {
  bool done = true;
};

/// The collective that the next messages belong to.
struct Purpose {
  std::span<const int> members;        // ranks of the job that take part, this one too
  const Fingerprint* print = nullptr;  // both outlive it
  bool compares = false;               // fingerprints first (checked mode)
};

/// Messages between two ranks arrive in the order of sending. A call that waits throws CommError,
/// naming the ranks at fault, if a peer is gone, silent or late. All posted messages are then
/// dropped (docs/communication.md).
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Bytes of one message of a large collective.
  virtual std::size_t chunk_bytes() const = 0;
  /// All-reduces up to this size exchange whole buffers.
  virtual std::size_t latency_bytes() const = 0;

  virtual void send(int peer, const void* data, std::size_t bytes, Transfer& transfer) = 0;
  virtual void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) = 0;
  /// Marks finished transfers without waiting.
  virtual void poll() = 0;
  /// Sleeps until a transfer posted earlier has finished; may return early.
  virtual void wait_some() = 0;
  /// Sleeps until this transfer has finished, without which the caller cannot go on.
  virtual void wait_for(const Transfer& transfer) {
    while (!transfer.done) wait_some();
  }

  /// Whether read() works between all ranks. The answer is the same on each rank.
  bool reads_peers() const { return reading_ && can_read_peers(); }
  /// All ranks have agreed in a collective that it no longer works.
  void stop_reading() { reading_ = false; }
  /// Copies out of another rank's memory, at an address that the other rank has sent and keeps
  /// valid. Both sides count it as traffic, because schedules that read are symmetric. Returns
  /// false, with garbage in `into`, if this process may not read (any more); then no rank is at
  /// fault.
  [[nodiscard]] virtual bool read(int peer, std::uint64_t address, void* into,
                                  std::size_t bytes) = 0;
  /// Ends the run for every rank: throws CommError with this reason.
  [[noreturn]] virtual void fail(const std::string& reason) = 0;

 protected:
  friend class GroupChannel;
  /// Whether reads worked when the job started; the same answer on each rank, and for good.
  virtual bool can_read_peers() const = 0;

 private:
  bool reading_ = true;
};

/// The work that keeps this rank from communicating (Communicator::busy).
struct BusyNote {
  std::string what;
  std::optional<std::chrono::steady_clock::time_point> until{};  // absent: without an end
};

inline void wait(Channel& channel, const Transfer& transfer) { channel.wait_for(transfer); }

// Some ranks of a channel, numbered anew. The schedules of a group send and receive over this. For
// example ranks 1 and 3 of four form a group. Rank 3 of the job is rank 1 here, and a send to peer
// 0 goes to rank 1 of the job.

class GroupChannel final : public Channel {
 public:
  /// Rank i here is rank members[i] of `whole`, which outlives this; `rank` is this one's i.
  GroupChannel(Channel& whole, std::vector<int> members, int rank)
      : whole_(whole), members_(std::move(members)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::size_t chunk_bytes() const override { return whole_.chunk_bytes(); }
  std::size_t latency_bytes() const override { return whole_.latency_bytes(); }

  void send(int peer, const void* data, std::size_t bytes, Transfer& transfer) override {
    whole_.send(member(peer), data, bytes, transfer);
  }
  void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) override {
    whole_.receive(member(peer), data, bytes, transfer);
  }
  void poll() override { whole_.poll(); }
  void wait_some() override { whole_.wait_some(); }
  void wait_for(const Transfer& transfer) override { whole_.wait_for(transfer); }
  bool read(int peer, std::uint64_t address, void* into, std::size_t bytes) override {
    return whole_.read(member(peer), address, into, bytes);
  }
  [[noreturn]] void fail(const std::string& reason) override {
    whole_.fail(reason);
    __builtin_unreachable();  // GCC does not believe the attribute of a virtual function
  }

 protected:
  /// Not reads_peers(): ranks outside of this group may have stopped reading in another group.
  bool can_read_peers() const override { return whole_.can_read_peers(); }

 private:
  int member(int rank) const { return members_[to_index(rank)]; }

  Channel& whole_;
  std::vector<int> members_;
  int rank_;
};

// Times that a caller states, as durations of the clock.

/// A time as a duration of the clock. Throws UsageError, naming `what`, unless it lies between a
/// millisecond and 1e9 s. Zero, negative times and NaN would end every collective at once, and a
/// larger one would overflow the clock.
[[nodiscard]] std::chrono::steady_clock::duration clock_time(Duration time,
                                                             const std::string& what);

/// How long ranks may take to come together: `caller`'s start_timeout, as clock_time. Without it,
/// the timeout, and at least half a minute.
[[nodiscard]] std::chrono::steady_clock::duration start_time(
    std::optional<Duration> stated, std::chrono::steady_clock::duration timeout,
    const std::string& caller);

}  // namespace linerate::comm
