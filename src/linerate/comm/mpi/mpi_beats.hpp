// Signs of life over MPI, next to the collectives. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/liveness.hpp"

namespace linerate::comm {

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
  bool all_peers(const std::function<bool(int)>& holds) const;

  const std::shared_ptr<Liveness> life_;
  const std::uint64_t world_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  Clock::time_point last_send_;
  std::optional<std::string> failure_;
  Message incoming_;
  MPI_Request incoming_request_ = MPI_REQUEST_NULL;
  std::vector<Line> lines_;  // by rank
};

}  // namespace linerate::comm
