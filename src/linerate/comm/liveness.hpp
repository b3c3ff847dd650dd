// Signs of life that ranks exchange next to the collectives, and what they tell of a rank that a
// collective waits for. How they travel is the transport's business.
//
// The algorithm works as follows. In a ring every rank waits for a neighbour, so a missing message
// does not tell who is missing. Therefore each rank sends each other rank a beat once a period. The
// beat has the number of collectives with the receiver that the rank has submitted and begun, and a
// hash of them. Ranks agree on the order of the collectives that they share, whatever the group. So
// the n-th of both ranks is the same one. A count below this rank's own means that the other rank
// has not come yet. A rank that waits inside a collective has three verdicts on another: it left,
// it is silent, or it is late. Two ranks whose hashes differ at the same count run different
// operations.
//
// An example. Ranks 0 and 1 have a group of their own. All three ranks run all-reduce 1, ranks 0
// and 1 run a broadcast in their group, and then all three run all-reduce 2. Rank 2 is late for it.
// Rank 0 has begun 3 collectives with rank 1 and 2 with rank 2. Rank 1's beat tells rank 0 "3 begun
// with you", so rank 1 is here. Rank 2's beat says "1 begun with you", so rank 2 is missing, and
// its beats show that it is alive. In the ring rank 1 waits for a message of rank 0. But the counts
// tell rank 1 as well that rank 2 is late, and not rank 0.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/random.hpp"

namespace linerate::comm {

using Clock = std::chrono::steady_clock;

/// The collective that the next messages belong to.
struct Purpose {
  std::span<const int> members;        // ranks of the job that take part, this one too
  const Fingerprint* print = nullptr;  // both outlive it
  bool compares = false;               // fingerprints first (checked mode)
};

/// The work that keeps this rank from communicating (Communicator::busy).
struct BusyNote {
  std::string what;
  std::optional<Clock::time_point> until{};  // absent: without an end
};

/// The words of a rank about itself, to all others. Plain bytes, so that it travels as it is.
struct Beat {
  /// `left`: no further operation from this rank. `done`: it also exits, and well.
  enum class State : std::int32_t { taking_part, left, done, failed };
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

  State state = State::taking_part;
  std::int32_t inside = 0;    // it waits in a collective
  std::int64_t busy_ns = -1;  // how long it is still busy (Communicator::busy); -1: it is not
  CutText<63> busy_what{};
  Begun prints{};  // what it runs
};

/// The words of a rank about the collectives that it shares with the receiver. Plain bytes, too.
struct SharedWork {
  static constexpr std::size_t kKept = 4;
  std::uint64_t submitted = 0, begun = 0;
  /// [n % kKept]: a hash of the first n of them. The lowest bit says that the n-th is compared
  /// first (checked mode); kComparing that its comparison is not over.
  std::array<std::uint64_t, kKept> marks{kHashStart & ~std::uint64_t{1}};
  static constexpr std::uint64_t kComparing = 1;
};

/// One rank's signs of life: what it says of itself, and what it has heard of the others. Any
/// thread may call it.
class Liveness {
 public:
  /// `timeout`: a rank silent or late for this long fails the collective. Judged at 85 % of it, so
  /// that every survivor has the verdict, and has said it, when the time is over.
  Liveness(int rank, int size, Clock::duration timeout, Clock::time_point now);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  Clock::duration timeout() const { return timeout_; }
  Clock::duration limit() const { return limit_; }
  /// How often a rank should give a sign of life.
  Clock::duration period() const { return period_; }

  // Notes of this rank's own work.
  void submitted(std::span<const int> members);
  /// It waits inside this collective from now on, until end().
  void begin(const Purpose& purpose, Clock::time_point now);
  /// The comparison before it is over; if `alike` is false all members refuse the collective.
  void compared(bool alike);
  void moved(Clock::time_point now);
  void end();
  void set_state(Beat::State state);
  void set_busy(std::optional<BusyNote> note);
  /// How long it has been waiting since the last message; nothing outside of collectives.
  std::optional<Clock::duration> stuck(Clock::time_point now) const;

  /// The words of this rank about itself, and about the collectives that it shares with the ranks
  /// from `first` on. All are of one moment, because a verdict compares them with each other.
  Beat say(Clock::time_point now, int first, std::span<SharedWork> shared) const;
  /// Collectives with `rank`, and a hash of what they were: they tell messages apart.
  std::uint64_t begun(int rank) const;
  std::uint64_t history(int rank) const;

  // Notes of other ranks' beats. `at`: when the other was alive, at the latest.
  void heard(int rank, const Beat& beat, const SharedWork& shared, Clock::time_point at);
  /// What a rank said last, and when.
  std::pair<Beat, Clock::time_point> last_of(int rank) const;
  /// To be called once a period. If this process slept through several periods, it was stopped
  /// itself or starved together with the others. So silence during that time counts against no
  /// rank.
  void awake(Clock::time_point now);

  /// The error of the collective in which this rank waits: "rank 2 gave no sign of life for 4.50 s
  /// (timeout 5.00 s): ...". Nothing while all may still be well.
  ///
  /// A rank is late if it is not here when the limit is over. There are two excuses. While any rank
  /// that is not here is busy, no rank is late, and then the time begins anew. A rank that waits in
  /// another collective has twice the limit. A rank that waits there with it names the rank at
  /// fault, unless ranks wait for each other in a circle.
  std::optional<std::string> judge(Clock::time_point now);
  /// Which ranks should give signs of life and do not; nothing while all may still be well.
  std::optional<std::string> silent(Clock::time_point now) const;

 private:
  struct Peer {
    Clock::time_point heard;  // when it last gave a sign of life
    Beat beat{};
    SharedWork shared{};
  };
  void mark(int rank, std::uint64_t value);
  bool is_member(int rank) const;
  bool is_here(int rank) const;
  bool is_busy(int rank, Clock::time_point now) const;
  bool runs_other(int rank) const;
  std::optional<std::string> silent_ranks(Clock::time_point now) const;
  std::optional<std::string> late_ranks(Clock::duration stuck) const;

  const int rank_;
  const Clock::duration timeout_, limit_, period_;
  std::vector<std::atomic<std::uint64_t>> submitted_;  // by rank
  mutable std::mutex mutex_;                           // of everything below
  std::vector<SharedWork> shared_;                     // by rank; without `submitted`
  std::vector<std::uint64_t> history_;                 // by rank
  Beat::State state_ = Beat::State::taking_part;
  std::optional<BusyNote> busy_;
  Begun prints_;
  Purpose purpose_;  // while inside_
  bool inside_ = false;
  Clock::time_point stuck_since_, awake_;
  std::vector<Peer> peers_;
};

}  // namespace linerate::comm
