#include "linerate/comm/liveness.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "linerate/core/index.hpp"
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
      peers_(to_index(size), Peer{now}) {}

void Liveness::heard(int rank, const Report& report, Clock::time_point now) {
  peers_[to_index(rank)] = {now, report};
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

/// If it could name a culprit, it would have done so by now.
bool Liveness::waits_elsewhere(const Report& report) const {
  return report.stalled && *report.stalled < timeout_ / 20 * 19;
}

bool Liveness::is_busy(int rank, Clock::time_point now) const {
  const Peer& peer = peers_[to_index(rank)];
  if (!peer.report.busy || peer.report.left) return false;
  return !peer.report.busy->left || now - peer.heard < *peer.report.busy->left;
}

/// The busy rank that `rank` is held up by, itself or another. Each rank hears every other, so one
/// step is enough, and no circle of ranks can excuse itself.
int Liveness::busy_behind(int rank, Clock::time_point now) const {
  if (is_busy(rank, now)) return rank;
  const int other = peers_[to_index(rank)].report.held_by;
  return other != Report::kNobody && is_busy(other, now) ? other : Report::kNobody;
}

std::string Liveness::late(const std::vector<int>& ranks, const std::string& waited) const {
  std::string text = fmt::format(
      "{} {} late: alive, but has not submitted this operation after {} (timeout {})",
      list_ranks(ranks), ranks.size() > 1 ? "are" : "is", waited, format_time(seconds(timeout_)));
  for (const int r : ranks) {
    const auto& busy = peers_[to_index(r)].report.busy;
    if (busy)
      text += fmt::format("; rank {} is busy for longer than it asked for: {}", r, busy->what);
  }
  return text;
}

void Liveness::note_busy_peers(const Waiting& in, Clock::time_point now) {
  for (const int r : in.members) {
    if (r == rank_) continue;
    const Report& peer = peers_[to_index(r)].report;
    const std::uint64_t wanted = in.begun[to_index(r)];
    const int busy = busy_behind(r, now);
    if (busy == Report::kNobody || (peer.submitted >= wanted && peer.begun >= wanted)) continue;
    stuck_since_ = now;
    held_by_ = busy;
  }
}

/// `begun`: the collectives shared with it, up to the one in which this rank is stuck.
Liveness::PeerState Liveness::state_of(int rank, std::uint64_t begun, Clock::duration stuck) const {
  const Report& peer = peers_[to_index(rank)].report;
  if (peer.submitted >= begun && peer.begun >= begun) return PeerState::here;
  if (peer.left) return PeerState::left;
  if (peer.submitted < begun)
    return waits_elsewhere(peer) && stuck <= 2 * limit_ ? PeerState::held_up : PeerState::late;
  // Without a collective that it is in, it is about to begin this one.
  return !peer.stalled || waits_elsewhere(peer) ? PeerState::held_up : PeerState::in_earlier_one;
}

std::vector<int> Liveness::members_that_are(PeerState state, const Waiting& in,
                                            Clock::duration stuck) const {
  std::vector<int> ranks;
  for (const int r : in.members)
    if (r != rank_ && state_of(r, in.begun[to_index(r)], stuck) == state) ranks.push_back(r);
  return ranks;
}

std::optional<std::string> Liveness::diagnose(const Waiting& in, Clock::time_point now) const {
  const Clock::duration stuck = now - stuck_since_;
  const auto those = [&](PeerState state) { return members_that_are(state, in, stuck); };
  if (const auto left = those(PeerState::left); !left.empty())
    return fmt::format("{} left the job without taking part; see what it printed",
                       list_ranks(left));
  if (auto silent_ranks = silent(now)) return silent_ranks;
  if (stuck <= limit_) return std::nullopt;
  const std::string waited = format_time(seconds(stuck));
  const std::string timeout = format_time(seconds(timeout_));
  if (const auto ranks = those(PeerState::late); !ranks.empty()) return late(ranks, waited);
  if (!those(PeerState::held_up).empty()) return std::nullopt;
  if (const auto ranks = those(PeerState::in_earlier_one); !ranks.empty())
    return fmt::format(
        "{} submitted this operation but {} stuck in an earlier one after {} (timeout {}): the "
        "ranks use their groups in different orders, or run different operations (turn checked "
        "mode on)",
        list_ranks(ranks), ranks.size() > 1 ? "are" : "is", waited, timeout);
  return fmt::format(
      "no message arrived for {} (timeout {}) though every rank takes part: the "
      "ranks run different operations here (turn checked mode on) or use their groups in "
      "different orders, or the network is stuck",
      waited, timeout);
}

}  // namespace linerate::comm
