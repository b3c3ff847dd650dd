// Point-to-point messages between ranks: a Channel is all that the schedules see of a transport.
// One thread owns it.
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

/// A message under way. It must not move, nor its memory, until `done`.
struct Transfer {
  bool done = true;
};

/// The collective that the next messages belong to.
struct Purpose {
  std::span<const int> members;        // ranks of the job that take part, this one too
  const Fingerprint* print = nullptr;  // both outlive it
  bool compares = false;               // fingerprints first (checked mode)
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

inline void wait(Channel& channel, const Transfer& transfer) { channel.wait_for(transfer); }

}  // namespace linerate::comm
