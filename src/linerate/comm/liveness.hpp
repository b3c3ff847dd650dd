// Who is to blame when a collective does not move on. Fed with what peers last said of themselves;
// asks no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace linerate::comm {

using Clock = std::chrono::steady_clock;

/// What is known of one peer.
struct Peer {
  Clock::time_point heard;      // when it last gave a sign of life
  std::uint64_t submitted = 0;  // collectives it has submitted
  bool left = false;            // it takes part in nothing more
};

class Liveness {
 public:
  /// `timeout`: a rank silent or late for this long fails the collective. Judged at 85 % of it, so
  /// that every survivor has the verdict, and has said it, when the time is over.
  Liveness(int rank, int size, Clock::duration timeout, Clock::time_point now);

  void heard(int rank, std::uint64_t submitted, bool left, Clock::time_point now);
  void stuck_since(Clock::time_point since) { stuck_since_ = since; }
  /// This process itself was stopped for a while: nobody is to blame for that time.
  void forgive(Clock::duration gap);

  /// Judges a rank that waits inside collective number `sequence`. Nothing while all may still be
  /// well; else who is at fault and how: "rank 2 has given no sign of life for 4.5 s (timeout 5 s)
  /// ...".
  std::optional<std::string> verdict(std::uint64_t sequence, Clock::time_point now) const;

  /// Which ranks should give signs of life and do not; nothing while all may still be well.
  std::optional<std::string> silent(Clock::time_point now) const;

  Clock::duration limit() const { return limit_; }

 private:
  int rank_;
  Clock::duration timeout_, limit_;
  Clock::time_point stuck_since_;
  std::vector<Peer> peers_;
};

}  // namespace linerate::comm
