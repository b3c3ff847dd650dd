// Who is to blame when a collective does not move on. Fed with what peers last said of themselves;
// asks no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

using Clock = std::chrono::steady_clock;

/// Communicator::busy of a peer, as it last said.
struct BusyReport {
  std::string what;
  std::optional<Clock::duration> left{};  // absent: without an end; may be over
};

/// What a peer says of itself. Its counts are of the collectives that it and this rank both take
/// part in: ranks agree on their order, so the n-th of one is the n-th of the other, and what a
/// peer does in groups without this rank moves nothing.
struct Report {
  std::uint64_t submitted = 0;
  std::uint64_t begun = 0;
  bool left = false;                         // it takes part in nothing more
  std::optional<Clock::duration> stalled{};  // inside a collective: since its last message
  std::optional<BusyReport> busy{};
  int held_by = kNobody;  // inside a collective: the busy rank that it waits for
  Begun begun_prints{};   // what it runs
  static constexpr int kNobody = -1;
};

class Liveness {
 public:
  /// `timeout`: a rank silent or late for this long fails the collective. Judged at 85 % of it, so
  /// that every survivor has the verdict, and has said it, when the time is over.
  Liveness(int rank, int size, Clock::duration timeout, Clock::time_point now);

  void heard(int rank, const Report& report, Clock::time_point now);
  /// What it said last, and when.
  const Report& report(int rank) const { return peers_[to_index(rank)].report; }
  Clock::time_point last_heard(int rank) const { return peers_[to_index(rank)].heard; }
  void stuck_since(Clock::time_point since) {
    stuck_since_ = since;
    held_by_ = Report::kNobody;
  }
  /// This process itself was stopped for a while: no peer is to blame for that time.
  void forgive(Clock::duration gap);

  /// A collective of `members` in which this rank waits; begun[r] counts the collectives shared
  /// with rank r that this rank has begun, this one included.
  struct Waiting {
    std::span<const int> members;
    std::span<const std::uint64_t> begun;
  };
  /// While a member is busy, or waits for a busy rank, nobody is to blame: the time of being stuck
  /// begins anew when it is no longer busy.
  void note_busy_peers(const Waiting& in, Clock::time_point now);
  /// Who is at fault, and how: "rank 2 gave no sign of life for 4.50 s (timeout 5.00 s): ...";
  /// nothing while all may still be well. A member that is not here yet because it waits for others
  /// in another group is not to blame: whoever waits there with it judges better. That holds as
  /// long as it has not been stuck itself for 95 % of the timeout (then no rank would judge: a
  /// circle), and, while it has not even submitted this collective, for twice the limit.
  std::optional<std::string> diagnose(const Waiting& in, Clock::time_point now) const;

  /// Which ranks should give signs of life and do not; nothing while all may still be well.
  std::optional<std::string> silent(Clock::time_point now) const;

  Clock::duration limit() const { return limit_; }
  Clock::time_point stuck_since() const { return stuck_since_; }
  /// The busy rank that note_busy_peers() found since stuck_since() was set; Report::kNobody.
  int held_by() const { return held_by_; }

 private:
  struct Peer {
    Clock::time_point heard;  // when it last gave a sign of life
    Report report{};
  };
  enum class PeerState { here, left, late, held_up, in_earlier_one };
  PeerState state_of(int rank, std::uint64_t begun, Clock::duration stuck) const;
  /// The other members in that state.
  std::vector<int> members_that_are(PeerState state, const Waiting& in,
                                    Clock::duration stuck) const;
  bool waits_elsewhere(const Report& report) const;
  bool is_busy(int rank, Clock::time_point now) const;
  int busy_behind(int rank, Clock::time_point now) const;
  std::string late(const std::vector<int>& ranks, const std::string& waited) const;

  int rank_;
  Clock::duration timeout_, limit_;
  Clock::time_point stuck_since_;
  int held_by_ = Report::kNobody;
  std::vector<Peer> peers_;
};

}  // namespace linerate::comm
