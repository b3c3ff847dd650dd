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

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"

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

}  // namespace linerate::comm
