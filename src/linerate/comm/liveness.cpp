#include "linerate/comm/liveness.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// "rank 2" or "ranks 2, 3"; empty for none.
std::string list_ranks(const std::vector<int>& ranks) {
  if (ranks.empty()) return {};
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

}  // namespace

Liveness::Liveness(int rank, int size, Clock::duration timeout, Clock::time_point now)
    : rank_(rank),
      timeout_(timeout),
      limit_(timeout / 20 * 17),
      stuck_since_(now),
      peers_(static_cast<std::size_t>(size), Peer{now}) {}

void Liveness::heard(int rank, const Report& report, Clock::time_point now) {
  peers_[static_cast<std::size_t>(rank)] = {now, report};
}

void Liveness::forgive(Clock::duration gap) {
  stuck_since_ += gap;
  for (Peer& peer : peers_) peer.heard += gap;
}

std::optional<std::string> Liveness::silent(Clock::time_point now) const {
  std::vector<int> silent;
  Clock::duration silence{};
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const Peer& peer = peers_[r];
    if (static_cast<int>(r) == rank_ || peer.report.left || now - peer.heard <= limit_) continue;
    silent.push_back(static_cast<int>(r));
    silence = std::max(silence, now - peer.heard);
  }
  if (silent.empty()) return std::nullopt;
  return fmt::format("{} gave no sign of life for {} (timeout {}): stopped, dead or cut off",
                     list_ranks(silent), format_time(seconds(silence)),
                     format_time(seconds(timeout_)));
}

/// Its own verdict would have come by now, were there one to give.
bool Liveness::waits_elsewhere(const Report& report) const {
  return report.stalled && *report.stalled < timeout_ / 20 * 19;
}

std::optional<std::string> Liveness::verdict(std::span<const int> members,
                                             std::span<const std::uint64_t> begun,
                                             Clock::time_point now) const {
  const Clock::duration stuck = now - stuck_since_;
  std::vector<int> left, late, behind;
  bool held_up = false;
  for (const int r : members) {
    if (r == rank_) continue;
    const Report& peer = peers_[static_cast<std::size_t>(r)].report;
    const std::uint64_t wanted = begun[static_cast<std::size_t>(r)];
    if (peer.submitted < wanted) {
      const bool excused = waits_elsewhere(peer) && stuck <= 2 * limit_;
      if (peer.left) {
        left.push_back(r);
      } else if (excused) {
        held_up = true;
      } else {
        late.push_back(r);
      }
    } else if (peer.begun < wanted) {
      // Not inside any collective: it is about to begin, or has left after its part.
      if (!peer.stalled || waits_elsewhere(peer)) {
        held_up = true;
      } else {
        behind.push_back(r);
      }
    }
  }
  if (!left.empty()) {
    return fmt::format("{} left the job without taking part; see what it printed",
                       list_ranks(left));
  }
  if (auto silent_ranks = silent(now)) return silent_ranks;
  const std::string timeout = format_time(seconds(timeout_));
  if (stuck <= limit_) return std::nullopt;
  const std::string waited = format_time(seconds(stuck));
  if (!late.empty()) {
    return fmt::format(
        "{} {} late: alive, but has not submitted this operation after {} (timeout {})",
        list_ranks(late), late.size() > 1 ? "are" : "is", waited, timeout);
  }
  if (held_up) return std::nullopt;
  if (!behind.empty()) {
    return fmt::format(
        "{} submitted this operation but {} stuck in an earlier one after {} (timeout {}): the "
        "ranks "
        "use their groups in different orders, or run different operations (turn checked mode on)",
        list_ranks(behind), behind.size() > 1 ? "are" : "is", waited, timeout);
  }
  return fmt::format(
      "no message arrived for {} (timeout {}) though every rank takes part: the "
      "ranks run different operations here (turn checked mode on) or use their groups in "
      "different orders, or the network is stuck",
      waited, timeout);
}

}  // namespace linerate::comm
