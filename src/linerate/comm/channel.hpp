// Point-to-point messages between ranks: all that the schedules see of a transport. One thread owns
// a Channel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

/// A message under way. It stays where it is, with its memory, until `done`.
struct Transfer {
  bool done = true;
};

/// The collective that the next messages belong to: their tag, and what errors call it.
struct Purpose {
  std::uint64_t sequence = 0;  // of the collective, from 0
  bool fingerprints = false;   // the comparison before it, not its payload
  std::string what;            // "all-reduce \"bucket 3\" (number 17)"
};

/// Messages between two ranks arrive in the order of sending. Every call that waits throws
/// CommError, naming the ranks at fault, when a peer is gone, silent or late; what was posted is
/// then dropped (docs/communication.md).
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string transport() const = 0;
  /// Bytes of one message of a large collective.
  virtual std::size_t chunk_bytes() const = 0;
  /// All-reduces up to this size exchange whole buffers.
  virtual std::size_t latency_bytes() const = 0;

  virtual void begin(const Purpose& purpose) = 0;
  virtual void send(int peer, const void* data, std::size_t bytes, Transfer& transfer) = 0;
  virtual void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) = 0;
  /// Marks finished transfers without waiting.
  virtual void poll() = 0;
  /// Sleeps until a transfer posted earlier has finished; may return early.
  virtual void wait_some() = 0;

  /// Whether read() works between all ranks; the same answer on each.
  virtual bool reads_peers() const = 0;
  /// Copies out of another rank's memory, at an address that the other rank has told and keeps
  /// valid. Both sides count it as traffic: schedules that read are symmetric.
  virtual void read(int peer, std::uint64_t address, void* into, std::size_t bytes) = 0;
  /// Ends the run for every rank: throws CommError with this reason.
  [[noreturn]] virtual void fail(const std::string& reason) = 0;

  /// Tells peers how many collectives this rank has submitted. Any thread.
  virtual void set_submitted(std::uint64_t count) = 0;
  /// While no collective runs: how long the owner may sleep before it calls service() again.
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
  void count_read(std::size_t bytes) {
    sent_bytes_ += static_cast<std::int64_t>(bytes);
    received_bytes_ += static_cast<std::int64_t>(bytes);
  }
  std::atomic<std::int64_t> sent_bytes_{0}, received_bytes_{0};
};

inline void wait(Channel& channel, const Transfer& transfer) {
  while (!transfer.done) channel.wait_some();
}

}  // namespace linerate::comm
