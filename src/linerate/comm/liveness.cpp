// One object serves all transports. They bring times and beats in; judge() gives the error that
// ends a collective, or nothing. Verdicts come in an order: different operations, left, silent,
// late. The first two are certain and need no time; the last two need the whole limit.
//
// The times of a timeout of 300 s: a beat every 0.5 s, and verdicts of silence and lateness after
// 255 s. So there are 45 s left in which a verdict reaches all ranks before their own time is over.
#include "linerate/comm/liveness.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

std::string time_text(Clock::duration d) {
  return format_time(std::chrono::duration<double>(d).count());
}

/// "rank 2" or "ranks 2, 3".
std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

}  // namespace

Liveness::Liveness(int rank, int size, Clock::duration timeout, Clock::time_point now)
    : rank_(rank),
      timeout_(timeout),
      limit_(timeout / 20 * 17),
      period_(std::clamp<Clock::duration>(timeout / 20, milliseconds(10), milliseconds(500))),
      submitted_(to_index(size)),
      shared_(to_index(size)),
      history_(to_index(size), kHashStart),
      stuck_since_(now),
      awake_(now),
      peers_(to_index(size), Peer{now}) {}

// ---- what this rank does ----

void Liveness::submitted(std::span<const int> members) {
  for (const int r : members) submitted_[to_index(r)].fetch_add(1, std::memory_order_relaxed);
}

void Liveness::mark(int rank, std::uint64_t value) {
  SharedWork& shared = shared_[to_index(rank)];
  shared.marks[shared.begun % SharedWork::kKept] = value;
}

/// Counts the collective for each member, and mixes its kind into the history with each. In checked
/// mode the kind is mixed in after the comparison, because ranks that differ refuse the collective
/// and may go on.
void Liveness::begin(const Purpose& purpose, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  purpose_ = purpose;
  inside_ = true;
  stuck_since_ = now;
  prints_.add(*purpose.print);
  for (const int r : purpose.members) {
    ++shared_[to_index(r)].begun;
    std::uint64_t& history = history_[to_index(r)];
    if (!purpose.compares) history = hash_value(purpose.print->kind(), history);
    mark(r, purpose.compares ? SharedWork::kComparing : history & ~SharedWork::kComparing);
  }
}

void Liveness::compared(bool alike) {
  const std::lock_guard lock(mutex_);
  for (const int r : purpose_.members) {
    std::uint64_t& history = history_[to_index(r)];
    if (alike) history = hash_value(purpose_.print->kind(), history);
    mark(r, history | SharedWork::kComparing);
  }
}

void Liveness::moved(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  stuck_since_ = now;
}

void Liveness::end() {
  const std::lock_guard lock(mutex_);
  inside_ = false;
}

void Liveness::set_state(Beat::State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void Liveness::set_busy(std::optional<BusyNote> note) {
  const std::lock_guard lock(mutex_);
  busy_ = std::move(note);
}

std::optional<Clock::duration> Liveness::stuck(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return inside_ ? std::optional(now - stuck_since_) : std::nullopt;
}

// ---- what it says of itself ----

Beat Liveness::say(Clock::time_point now, int first, std::span<SharedWork> shared) const {
  const std::lock_guard lock(mutex_);
  // The state comes before the counts, because a rank that has left has submitted before.
  Beat beat{.state = state_, .inside = inside_ ? 1 : 0, .prints = prints_};
  for (std::size_t i = 0; i < shared.size(); ++i) {
    shared[i] = shared_[to_index(first) + i];
    shared[i].submitted = submitted_[to_index(first) + i].load(std::memory_order_relaxed);
  }
  if (!busy_) return beat;
  beat.busy_ns = Beat::kEndless;
  if (busy_->until)
    beat.busy_ns = std::max<std::int64_t>(0, nanoseconds(*busy_->until - now).count());
  beat.busy_what.set(busy_->what);
  return beat;
}

std::uint64_t Liveness::begun(int rank) const {
  const std::lock_guard lock(mutex_);
  return shared_[to_index(rank)].begun;
}

std::uint64_t Liveness::history(int rank) const {
  const std::lock_guard lock(mutex_);
  return history_[to_index(rank)];
}

// ---- what others say ----

void Liveness::heard(int rank, const Beat& beat, const SharedWork& shared, Clock::time_point at) {
  const std::lock_guard lock(mutex_);
  peers_[to_index(rank)] = {at, beat, shared};
}

std::pair<Beat, Clock::time_point> Liveness::last_of(int rank) const {
  const std::lock_guard lock(mutex_);
  return {peers_[to_index(rank)].beat, peers_[to_index(rank)].heard};
}

/// Shifts all times by the gap, as if this process had not been asleep.
void Liveness::awake(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const Clock::duration gap = now - awake_;
  awake_ = now;
  if (gap <= 4 * period_) return;
  stuck_since_ += gap;
  for (Peer& peer : peers_) peer.heard += gap;
}

// ---- the verdicts ----

bool Liveness::is_member(int rank) const {
  return std::find(purpose_.members.begin(), purpose_.members.end(), rank) !=
         purpose_.members.end();
}

/// Whether that rank has come as far as this one: into the same collective, or beyond it.
bool Liveness::is_here(int rank) const {
  return peers_[to_index(rank)].shared.begun >= shared_[to_index(rank)].begun;
}

bool Liveness::is_busy(int rank, Clock::time_point now) const {
  const auto& [heard, beat, shared] = peers_[to_index(rank)];
  return beat.busy_ns >= 0 && beat.state == Beat::State::taking_part &&
         (beat.busy_ns == Beat::kEndless || now - heard < nanoseconds(beat.busy_ns));
}

/// Both ranks hashed the collectives that they share. The hashes are compared at the count of the
/// rank that is behind. If they differ there, the ranks run different programs.
bool Liveness::runs_other(int rank) const {
  const SharedWork &mine = shared_[to_index(rank)], &theirs = peers_[to_index(rank)].shared;
  const std::uint64_t both = std::min(mine.begun, theirs.begun);
  if (std::max(mine.begun, theirs.begun) - both >= SharedWork::kKept) return false;
  const std::uint64_t a = mine.marks[both % SharedWork::kKept];
  const std::uint64_t b = theirs.marks[both % SharedWork::kKept];
  const bool comparing = a == SharedWork::kComparing || b == SharedWork::kComparing;
  return comparing ? ((a ^ b) & 1) != 0 : a != b;
}

std::optional<std::string> Liveness::silent(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return silent_ranks(now);
}

/// Names the ranks from which no beat came within the limit. A rank that said goodbye is not
/// expected to beat.
std::optional<std::string> Liveness::silent_ranks(Clock::time_point now) const {
  std::vector<int> ranks;
  Clock::duration silence{};
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[to_index(r)];
    if (r == rank_ || peer.beat.state != Beat::State::taking_part || now - peer.heard <= limit_)
      continue;
    ranks.push_back(r);
    silence = std::max(silence, now - peer.heard);
  }
  if (ranks.empty()) return std::nullopt;
  return fmt::format(
      "{} gave no sign of life for {} (timeout {}): it is stopped, dead or cut off from the "
      "network; look at its process and at what it printed",
      list_ranks(ranks), time_text(silence), time_text(timeout_));
}

std::optional<std::string> Liveness::judge(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (!inside_) return std::nullopt;
  std::vector<int> left;
  bool busy = false;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    if (runs_other(r))
      return different_operations(fmt::format("rank {} and rank {} began different ones", rank_, r),
                                  rank_, prints_, r, peers_[to_index(r)].beat.prints);
    const bool comes = is_member(r) && is_here(r);
    if (is_member(r) && !comes && peers_[to_index(r)].beat.state != Beat::State::taking_part)
      left.push_back(r);
    busy = busy || (!comes && is_busy(r, now));
  }
  if (!left.empty())
    return fmt::format("{} left the job without taking part; see what it printed",
                       list_ranks(left));
  if (auto ranks = silent_ranks(now)) return ranks;
  if (busy) stuck_since_ = now;
  return late_ranks(now - stuck_since_);
}

/// Names the members that have not come when the limit is over. For example the limit is 255 s, and
/// rank 1 waits in another collective for rank 2, which hangs. Rank 0 excuses rank 1 up to 510 s.
/// Rank 1 finds at 255 s that rank 2 is late and ends the run, so the error names rank 2 on all
/// ranks.
std::optional<std::string> Liveness::late_ranks(Clock::duration stuck) const {
  if (stuck <= limit_) return std::nullopt;
  std::vector<int> ranks;
  bool excused = false;
  std::string why;
  for (const int r : purpose_.members) {
    if (r == rank_ || is_here(r)) continue;
    const auto& [heard, beat, shared] = peers_[to_index(r)];
    const bool submitted = shared.submitted >= shared_[to_index(r)].begun;
    if ((beat.inside != 0 || submitted) && stuck <= 2 * limit_) {
      excused = true;
      continue;
    }
    ranks.push_back(r);
    if (beat.busy_ns >= 0)
      why += fmt::format("; rank {} is busy for longer than it asked for: {}", r,
                         beat.busy_what.shown());
    if (beat.inside != 0)
      why += fmt::format(
          "; rank {} is inside {}, so ranks that use their groups in different orders wait for "
          "each other (turn checked mode on)",
          r, beat.prints.last.describe());
  }
  if (!ranks.empty())
    return fmt::format("{} {} late: alive, but {} not begun this operation after {} (timeout {}){}",
                       list_ranks(ranks), ranks.size() > 1 ? "are" : "is",
                       ranks.size() > 1 ? "have" : "has", time_text(stuck), time_text(timeout_),
                       why);
  if (excused) return std::nullopt;
  return fmt::format(
      "no message arrived for {} (timeout {}) although every rank takes part. Either the ranks run "
      "different operations here (turn checked mode on), or the network is stuck",
      time_text(stuck), time_text(timeout_));
}

}  // namespace linerate::comm
