// MPI in this process: it is started once and ended once. No two threads call it at a time, no
// thread calls it after its end, and the process never hangs in it. Private to comm/mpi.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/comm/liveness.hpp"
#include "linerate/comm/transport.hpp"

namespace linerate::comm {

/// Sets how this process parts from its peers when it exits or calls MPI_Finalize. It is called on
/// that thread, when no other thread calls MPI, with whether this process succeeded. It returns
/// whether all processes did. Replaces the one before.
void set_parting(std::function<bool(bool succeeded)> parting);

/// MPI may still write to memory that is no longer ours: from now on this process never calls it
/// again.
void call_mpi_no_more();

/// False after call_mpi_no_more() and from MPI_Finalize on.
bool may_call_mpi();

/// MPI's text for an error code.
std::string error_text(int code);

/// Throws CommError when an MPI call reports an error.
void check_mpi(int code, std::string_view call);

// One world at a time in a process: each has a thread of its own that calls MPI, and
// MPI_THREAD_SERIALIZED allows but one. Private to comm/mpi.

/// The right to be the world of this process, given back by the destructor. While the world is
/// being made, its thread calls MPI. An exit from another thread then leaves without MPI.
class OneWorld {
 public:
  /// Throws UsageError while another one has it.
  OneWorld();
  OneWorld(OneWorld&& other) noexcept : mine_(std::exchange(other.mine_, false)) {}
  OneWorld& operator=(OneWorld&&) = delete;
  ~OneWorld();

 private:
  bool mine_ = true;
};

// Signs of life over MPI, next to the collectives.

/// Every rank sends every other a beat once a period, on a communicator of its own. All calls come
/// from the thread that owns MPI.
class MpiBeats {
 public:
  MpiBeats(MPI_Comm parent, std::shared_ptr<Liveness> life);
  ~MpiBeats();
  MpiBeats(const MpiBeats&) = delete;
  MpiBeats& operator=(const MpiBeats&) = delete;

  void set_state(Beat::State state);
  /// The next service() sends, due or not.
  void say_now();
  /// The run has failed. Peers learn of it with the next beat. The first failure counts, own or
  /// heard.
  void set_failure(const std::string& reason);
  const std::optional<std::string>& failure() const { return failure_; }

  /// Takes beats that have arrived. Sends beats if a period has passed, or if there is news.
  void service(Clock::time_point now);

  /// At exit: returns whether every rank succeeded, this one included. A rank that succeeded waits
  /// until all others have come here too, as MPI_Finalize would. Unlike MPI_Finalize, it learns of
  /// a rank that fails or falls silent.
  bool part(bool succeeded);
  /// Gives back what belongs to MPI; no beats after this.
  void close();

 private:
  struct Message {
    std::uint64_t world =
        0;  // which make_world of the process: MPI reuses the ids of freed communicators
    Beat beat = {};
    SharedWork shared = {};
    std::array<char, 900> failure{};  // empty: none
  };
  struct Line {
    Message outgoing;
    MPI_Request request = MPI_REQUEST_NULL;
    bool current = true;  // the last message has the latest news
  };

  std::optional<std::string> why_not_all_succeed(Clock::time_point now);
  bool meet();
  void farewell();
  void send(Clock::time_point now);
  void take(Clock::time_point now);
  void receive();
  bool all_peers_are(Beat::State state, Clock::duration silence) const;

  const std::shared_ptr<Liveness> life_;
  const std::uint64_t world_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  Clock::time_point last_send_;
  std::optional<std::string> failure_;
  Message incoming_;
  MPI_Request incoming_request_ = MPI_REQUEST_NULL;
  std::vector<Line> lines_;  // by rank
};

// Messages over MPI's non-blocking point-to-point calls. Private to comm/mpi.

class MpiChannel final : public Transport {
 public:
  MpiChannel(MPI_Comm world, Clock::duration timeout, OneWorld claim);
  ~MpiChannel() override;

  std::string name() const override { return "mpi"; }
  std::size_t chunk_bytes() const override { return std::size_t{256} << 10; }
  std::size_t latency_bytes() const override { return std::size_t{32} << 10; }

  void poll() override { test(); }
  void wait_some() override;
  bool can_read_peers() const override { return !pids_.empty(); }
  bool read(int peer, std::uint64_t address, void* into, std::size_t bytes) override;

  void abort(const std::string& reason) override;
  void begin(const Purpose& purpose) override;
  std::chrono::nanoseconds idle_period() const override { return idle_; }
  void service() override;
  void leave() override;

 private:
  void start(const PeerMessage& message) override;
  std::string end_messages(const std::string& reason, bool at_once) override;
  bool test();
  void keep_unfinished();
  [[noreturn]] void blame(const std::string& problem);
  void look_after_peers(Clock::time_point now);
  void serve_beats(Clock::time_point now);
  void abandon(bool at_once);
  void hear_abort();

  OneWorld claim_;  // first: given back when everything else is gone
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::shared_ptr<MpiBeats> beats_;  // shared with the exit handler
  std::vector<pid_t> pids_;          // by rank; empty: their memory is not read
  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
  Clock::time_point last_look_;
  Clock::duration idle_{};
  std::vector<MPI_Request> requests_;
  std::vector<PeerMessage> pending_;  // pending_[i] belongs to requests_[i]
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace linerate::comm
