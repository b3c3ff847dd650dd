// Messages between threads. The receiver copies a large message straight out of the sender's
// memory; a small message carries its bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/transport.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

/// The state that the ranks of one run share. A shared_ptr owns it, since channels may outlive the
/// owner.
class ThreadWorld : public std::enable_shared_from_this<ThreadWorld> {
 public:
  /// Sizes as in Channel; tests choose small ones. Reads are off because an array must outlive its
  /// readers: a rank that fails would free it under them.
  ThreadWorld(int size, Clock::duration timeout, std::size_t chunk_bytes = std::size_t{128} << 10,
              std::size_t latency_bytes = std::size_t{32} << 10, bool reads_peers = false);
  ~ThreadWorld();

  /// Ends the run for every rank. Each rank that waits, now or later, throws a CommError with this
  /// text. The first text counts.
  void fail(const std::string& reason);
  std::unique_ptr<Transport> channel(int rank);
  /// After so many reads the rank may not read any more: tests deny it in mid-run.
  void allow_reads(int rank, std::int64_t reads) { reads_left(rank) = reads; }

 private:
  friend class ThreadChannel;
  struct Mailbox;

  std::optional<std::string> failure() const;
  void wake_all();

  Clock::duration timeout_;
  std::size_t chunk_bytes_, latency_bytes_;
  bool reads_peers_;
  std::vector<std::int64_t> reads_left_;  // by rank, whose thread alone uses it
  std::int64_t& reads_left(int rank) { return reads_left_[to_index(rank)]; }
  mutable std::mutex mutex_;  // of failure_ alone
  std::optional<std::string> failure_;
  // A mutex per mailbox, not one per world: a slow rank then blocks only its peer.
  std::vector<std::unique_ptr<Mailbox>> boxes_;
};

}  // namespace linerate::comm
