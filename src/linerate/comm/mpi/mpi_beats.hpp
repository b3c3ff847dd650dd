// Signs of life that progress threads exchange next to the collectives: who is there, how far it
// has come, and what failed. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/comm/channel.hpp"
#include "linerate/comm/liveness.hpp"

namespace linerate::comm {

/// Every rank tells every other its state once a period, on a communicator of its own. All calls
/// come from the thread that owns MPI, except submitted().
class MpiBeats {
 public:
  /// `left`: no further operation from this rank in this world. `done`: it also exits, and well.
  enum class State : std::int32_t { taking_part, left, done, failed };

  MpiBeats(MPI_Comm parent, Clock::duration timeout);
  ~MpiBeats();
  MpiBeats(const MpiBeats&) = delete;
  MpiBeats& operator=(const MpiBeats&) = delete;

  /// One more collective with these ranks. Any thread, one at a time.
  void submitted(std::span<const int> members);
  /// This rank waits inside this collective from now on, until end().
  void begin(const Purpose& purpose, Clock::time_point now);
  /// What it has begun.
  const Begun& prints() const { return prints_; }
  void end() { inside_ = false; }
  void set_state(State state);
  /// Any thread.
  void set_busy(std::optional<BusyNote> note);
  /// Peers learn of it with the next beat. The first failure counts, own or heard.
  void set_failure(const std::string& reason);
  const std::optional<std::string>& failure() const { return failure_; }

  /// Takes what arrived; sends when a period has passed or something has changed.
  void service(Clock::time_point now);
  Liveness& liveness() { return liveness_; }
  Clock::duration period() const { return period_; }

  /// At exit: returns whether every rank succeeded, this one included. A rank that did waits until
  /// all others have come here too, as MPI_Finalize would, but learns of one that fails or falls
  /// silent instead.
  bool part(bool succeeded);
  /// Gives back what belongs to MPI; no beats after this.
  void close();

 private:
  struct Beat {
    std::uint64_t world =
        0;  // which make_world of the process: MPI reuses the ids of freed communicators
    std::uint64_t submitted = 0, begun = 0;  // collectives that the receiver takes part in too
    std::int64_t stalled_ns = -1;            // as Report::stalled; -1 outside of collectives
    std::int64_t busy_ns = -1;  // as BusyReport::left; kEndless, or -1 if it is not busy
    std::int32_t held_by = Report::kNobody;
    State state = State::taking_part;
    std::int32_t failed = 0;
    std::array<char, 900> reason{};
    std::array<char, 64> busy_what{};
    Begun prints;
    static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  };
  struct PeerLine {
    Beat outgoing;
    MPI_Request request = MPI_REQUEST_NULL;
    bool current = true;  // the last beat said what there is to say
    State state = State::taking_part;
    Clock::time_point heard;
  };

  bool is_own(const PeerLine& peer) const;
  std::optional<std::string> why_not_all_succeed(Clock::time_point now);
  bool meet();
  void farewell();
  void send(Clock::time_point now);
  void take(Clock::time_point now);
  void read(int from, Clock::time_point now);
  void changed();
  void say_busy(Beat& beat, Clock::time_point now);

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::uint64_t world_;
  int rank_ = 0, size_ = 1;
  Clock::duration timeout_, period_;
  Clock::time_point last_service_, last_send_;
  std::vector<std::atomic<std::uint64_t>> submitted_;  // by rank
  std::vector<std::uint64_t> begun_;                   // by rank
  std::mutex busy_mutex_;
  std::optional<BusyNote> busy_;
  Begun prints_;
  bool inside_ = false;
  State state_ = State::taking_part;
  std::optional<std::string> failure_;
  Beat incoming_;
  MPI_Request incoming_request_ = MPI_REQUEST_NULL;
  std::vector<PeerLine> peers_;
  Liveness liveness_;
};

}  // namespace linerate::comm
