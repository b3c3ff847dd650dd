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

void Liveness::heard(int rank, std::uint64_t submitted, bool left, Clock::time_point now) {
  peers_[static_cast<std::size_t>(rank)] = {now, submitted, left};
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
    if (static_cast<int>(r) == rank_ || peer.left || now - peer.heard <= limit_) continue;
    silent.push_back(static_cast<int>(r));
    silence = std::max(silence, now - peer.heard);
  }
  if (silent.empty()) return std::nullopt;
  return fmt::format("{} gave no sign of life for {} (timeout {}): stopped, dead or cut off",
                     list_ranks(silent), format_time(seconds(silence)),
                     format_time(seconds(timeout_)));
}

std::optional<std::string> Liveness::verdict(std::uint64_t sequence, Clock::time_point now) const {
  std::vector<int> left, late;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const Peer& peer = peers_[r];
    if (static_cast<int>(r) == rank_ || peer.submitted > sequence) continue;
    (peer.left ? left : late).push_back(static_cast<int>(r));
  }
  if (!left.empty()) {
    return fmt::format("{} left the job without taking part; see what it printed",
                       list_ranks(left));
  }
  if (auto silent_ranks = silent(now)) return silent_ranks;
  const std::string timeout = format_time(seconds(timeout_));
  if (now - stuck_since_ <= limit_) return std::nullopt;
  const std::string waited = format_time(seconds(now - stuck_since_));
  if (!late.empty()) {
    return fmt::format(
        "{} {} late: alive, but has not submitted this operation after {} (timeout {})",
        list_ranks(late), late.size() > 1 ? "are" : "is", waited, timeout);
  }
  return fmt::format(
      "no message arrived for {} (timeout {}) though every rank takes part: the "
      "ranks run different operations here (turn checked mode on), or the network "
      "is stuck",
      waited, timeout);
}

}  // namespace linerate::comm
