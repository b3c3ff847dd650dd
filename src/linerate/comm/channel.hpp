// Point-to-point messages between ranks: a Channel is all that the schedules see of a transport, a
// Transport what the owner of the progress thread sees. One thread owns both.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"

namespace linerate::comm {

/// A message under way. It must not move, nor its memory, until `done`.
struct Transfer {
  bool done = true;
};

/// The collective that the next messages belong to.
struct Purpose {
  std::span<const int> members;        // ranks of the job that take part, this one too
  const Fingerprint* print = nullptr;  // both outlive it
};

/// Messages between two ranks arrive in the order of sending. Every call that waits throws
/// CommError, naming the ranks at fault, when a peer is gone, silent or late; what was posted is
/// then dropped (docs/communication.md).
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
  /// Sleeps until this one has, without which the caller cannot go on.
  virtual void wait_for(const Transfer& transfer) {
    while (!transfer.done) wait_some();
  }

  /// Whether read() works between all ranks; the same answer on each.
  bool reads_peers() const { return reading_ && can_read_peers(); }
  /// All ranks have agreed in a collective that it no longer works.
  void stop_reading() { reading_ = false; }
  /// Copies out of another rank's memory, at an address that the other rank has sent and keeps
  /// valid. Both sides count it as traffic: schedules that read are symmetric. False, with nothing
  /// of use in `into`, if this process may not (any more): nobody is at fault.
  [[nodiscard]] virtual bool read(int peer, std::uint64_t address, void* into,
                                  std::size_t bytes) = 0;
  /// Ends the run for every rank: throws CommError with this reason.
  [[noreturn]] virtual void fail(const std::string& reason) = 0;
  /// The same, since what `peer` sent is not of the collective that this rank is in: the reason
  /// names what both run.
  [[noreturn]] virtual void fail_with(int peer, const std::string& seen) = 0;

 protected:
  friend class GroupChannel;
  /// Whether reads worked when the job started; the same answer on each rank, and for good.
  virtual bool can_read_peers() const = 0;

 private:
  bool reading_ = true;
};

/// What this rank does instead of communicating (Communicator::busy).
struct BusyNote {
  std::string what;
  std::optional<std::chrono::steady_clock::time_point> until{};  // absent: without an end
};

/// The Channel over all ranks of the job. What two ranks have in common is the sequence of the
/// collectives that both take part in, of whatever group: a Transport counts those for each peer,
/// submitted and begun. The counts tell messages apart, and who is late.
class Transport : public Channel {
 public:
  virtual std::string name() const = 0;  // as Communicator::transport

  /// Tells the other members that this rank has submitted one more collective with them. Any
  /// thread, one at a time.
  virtual void submitted(std::span<const int> members) = 0;
  /// Ends the run for every rank with this reason, as soon as the owner looks. Any thread.
  virtual void abort(const std::string& reason) = 0;
  /// From now on the peers know that this rank is busy, or no longer. Any thread.
  virtual void set_busy(std::optional<BusyNote> note) = 0;
  /// Starts a collective: the messages until end() are its own. The peers' counts move on here.
  virtual void begin(const Purpose& purpose) = 0;
  virtual void end() = 0;
  /// An exception that is not fail()'s has left a collective: ends the run for every rank, and lets
  /// nothing touch posted memory any more.
  virtual void give_up(const std::string& reason) = 0;
  /// Within a collective: the next messages are the comparison before it, not its payload.
  void set_comparing(bool comparing) { comparing_ = comparing; }
  /// All members have refused the collective after its comparison.
  virtual void take_back() = 0;

  /// While no collective runs: how long the owner may sleep before it calls service() again, which
  /// throws nothing: the next collective says what failed.
  virtual std::chrono::nanoseconds idle_period() const = 0;
  virtual void service() = 0;
  /// This rank takes part in nothing more.
  virtual void leave() = 0;

  /// Any thread.
  Traffic traffic() const {
    return {{sent_bytes_.load(std::memory_order_relaxed)},
            {received_bytes_.load(std::memory_order_relaxed)}};
  }

 protected:
  bool comparing_ = false;
  void count_read(std::size_t bytes) {
    sent_bytes_ += static_cast<std::int64_t>(bytes);
    received_bytes_ += static_cast<std::int64_t>(bytes);
  }
  std::atomic<std::int64_t> sent_bytes_{0}, received_bytes_{0};
};

inline void wait(Channel& channel, const Transfer& transfer) { channel.wait_for(transfer); }

}  // namespace linerate::comm
