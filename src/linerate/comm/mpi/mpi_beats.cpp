#include "linerate/comm/mpi/mpi_beats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "linerate/comm/mpi/mpi_process.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

constexpr int kTag = 1;

/// Cut to what fits, and ended by a 0.
template <std::size_t kSize>
void copy_text(std::array<char, kSize>& to, const std::string& text) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

Clock::duration period_for(Clock::duration timeout) {
  using std::chrono::milliseconds;
  return std::clamp<Clock::duration>(timeout / 20, milliseconds(10), milliseconds(500));
}

/// The number of this process's world; the same on every rank, since all of them make worlds
/// together.
std::uint64_t next_world() {
  static std::uint64_t worlds = 0;
  return ++worlds;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

}  // namespace

MpiBeats::MpiBeats(MPI_Comm parent, Clock::duration timeout)
    : world_(next_world()),
      rank_(rank_in(parent)),
      size_(size_of(parent)),
      timeout_(timeout),
      period_(period_for(timeout)),
      last_service_(Clock::now()),
      last_send_(last_service_),
      submitted_(to_index(size_)),
      begun_(to_index(size_)),
      peers_(to_index(size_)),
      liveness_(rank_, size_, timeout, last_service_) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  for (PeerLine& peer : peers_) peer.heard = last_service_;
  check_mpi(MPI_Irecv(&incoming_, sizeof(Beat), MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_,
                      &incoming_request_),
            "MPI_Irecv");
}

MpiBeats::~MpiBeats() { close(); }

void MpiBeats::close() {
  if (comm_ == MPI_COMM_NULL || !may_call_mpi()) return;
  if (incoming_request_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&incoming_request_);
    MPI_Wait(&incoming_request_, MPI_STATUS_IGNORE);
  }
  for (PeerLine& peer : peers_) {
    if (peer.request != MPI_REQUEST_NULL) MPI_Wait(&peer.request, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&comm_);
}

bool MpiBeats::is_own(const PeerLine& peer) const { return &peer == &peers_[to_index(rank_)]; }

void MpiBeats::changed() {
  for (PeerLine& peer : peers_) peer.current = false;
}

void MpiBeats::set_state(State state) {
  state_ = state;
  changed();
}

void MpiBeats::set_failure(const std::string& reason) {
  if (failure_) return;
  failure_ = reason;
  mark_failed();
  changed();
}

void MpiBeats::set_busy(std::optional<BusyNote> note) {
  const std::lock_guard lock(busy_mutex_);
  busy_ = std::move(note);
}

void MpiBeats::say_busy(Beat& beat, Clock::time_point now) {
  const std::lock_guard lock(busy_mutex_);
  beat.busy_ns = -1;
  if (!busy_) return;
  const auto left = [&] {
    return std::max<std::int64_t>(0, std::chrono::nanoseconds(*busy_->until - now).count());
  };
  beat.busy_ns = busy_->until ? left() : Beat::kEndless;
  copy_text(beat.busy_what, busy_->what);
}

void MpiBeats::submitted(std::span<const int> members) {
  for (const int r : members) submitted_[to_index(r)].fetch_add(1, std::memory_order_relaxed);
}

void MpiBeats::begin(const Purpose& purpose, Clock::time_point now) {
  for (const int r : purpose.members) ++begun_[to_index(r)];
  prints_.add(*purpose.print);
  inside_ = true;
  liveness_.stuck_since(now);
}

void MpiBeats::service(Clock::time_point now) {
  if (comm_ == MPI_COMM_NULL || !may_call_mpi()) return;
  // Silence while this process slept through several periods says nothing about the others: it was
  // stopped itself, or starved together with them.
  const Clock::duration gap = now - last_service_;
  if (gap > 4 * period_) {
    liveness_.forgive(gap);
    for (PeerLine& peer : peers_) peer.heard += gap;
  }
  last_service_ = now;
  take(now);
  send(now);
}

void MpiBeats::take(Clock::time_point now) {
  while (true) {
    int arrived = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&incoming_request_, &arrived, &status), "MPI_Test");
    if (arrived == 0) return;
    if (incoming_.world == world_) read(status.MPI_SOURCE, now);
    check_mpi(MPI_Irecv(&incoming_, sizeof(Beat), MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_,
                        &incoming_request_),
              "MPI_Irecv");
  }
}

void MpiBeats::read(int from, Clock::time_point now) {
  PeerLine& peer = peers_[to_index(from)];
  peer.heard = now;
  peer.state = incoming_.state;
  Report report{incoming_.submitted, incoming_.begun, incoming_.state != State::taking_part, {}};
  if (incoming_.stalled_ns >= 0) report.stalled = std::chrono::nanoseconds(incoming_.stalled_ns);
  report.held_by = incoming_.held_by;
  report.begun_prints = incoming_.prints;
  if (incoming_.busy_ns >= 0) {
    report.busy = BusyReport{incoming_.busy_what.data()};
    if (incoming_.busy_ns != Beat::kEndless)
      report.busy->left = std::chrono::nanoseconds(incoming_.busy_ns);
  }
  liveness_.heard(from, report, now);
  if (incoming_.failed != 0) set_failure(incoming_.reason.data());
}

/// At most one beat to a peer is under way: one that does not take its beats gets no more.
void MpiBeats::send(Clock::time_point now) {
  const bool due = now - last_send_ >= period_;
  if (due) last_send_ = now;
  for (int r = 0; r < size_; ++r) {
    PeerLine& peer = peers_[to_index(r)];
    if (r == rank_ || (!due && peer.current)) continue;
    int free = 1;
    if (peer.request != MPI_REQUEST_NULL) {
      check_mpi(MPI_Test(&peer.request, &free, MPI_STATUS_IGNORE), "MPI_Test");
    }
    if (free == 0) continue;
    peer.outgoing.world = world_;
    const auto i = to_index(r);
    peer.outgoing.submitted = submitted_[i].load(std::memory_order_relaxed);
    peer.outgoing.begun = begun_[i];
    peer.outgoing.stalled_ns =
        inside_ ? std::chrono::nanoseconds(now - liveness_.stuck_since()).count() : -1;
    peer.outgoing.state = state_;
    peer.outgoing.failed = failure_ ? 1 : 0;
    if (failure_) copy_text(peer.outgoing.reason, *failure_);
    peer.outgoing.prints = prints_;
    peer.outgoing.held_by = inside_ ? liveness_.held_by() : Report::kNobody;
    say_busy(peer.outgoing, now);
    check_mpi(MPI_Isend(&peer.outgoing, sizeof(Beat), MPI_BYTE, r, kTag, comm_, &peer.request),
              "MPI_Isend");
    peer.current = true;
  }
}

bool MpiBeats::part(bool succeeded) {
  if (succeeded && meet()) return true;
  farewell();
  return false;
}

std::optional<std::string> MpiBeats::why_not_all_succeed(Clock::time_point now) {
  if (failure_) return failure_;
  for (int r = 0; r < size_; ++r)
    if (peers_[to_index(r)].state == State::failed)
      return fmt::format("rank {} exits with an error; see what it printed", r);
  const auto silent = liveness_.silent(now);
  if (silent) set_failure(*silent);
  return silent;
}

/// A peer that has left the world may compute for as long as it likes before it exits; one that
/// takes part has a progress thread, which gives signs of life.
bool MpiBeats::meet() {
  set_state(State::done);
  Clock::duration nap = std::chrono::microseconds(100);
  while (true) {
    const Clock::time_point now = Clock::now();
    service(now);
    if (const auto reason = why_not_all_succeed(now)) {
      fmt::print(stderr, "rank {}: waiting to exit: {}\n", rank_, *reason);
      return false;
    }
    const bool all_done = std::all_of(peers_.begin(), peers_.end(), [&](const PeerLine& peer) {
      return is_own(peer) || (peer.current && peer.state == State::done);
    });
    if (all_done) return true;
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, period_);
  }
}

/// After a failure: says so and waits until all peers that still give signs of life exit too, or
/// the grace is over, so that the launcher does not kill them before they have said what happened.
void MpiBeats::farewell() {
  using std::chrono::milliseconds;
  const Clock::duration grace =
      std::clamp<Clock::duration>(timeout_ / 10, milliseconds(100), milliseconds(5000));
  set_state(State::failed);
  const Clock::time_point start = Clock::now();
  if (!may_call_mpi()) return std::this_thread::sleep_for(grace);  // the peers have heard
  while (Clock::now() - start < grace) {
    const Clock::time_point now = Clock::now();
    service(now);
    const bool all_said = std::all_of(peers_.begin(), peers_.end(), [&](const PeerLine& peer) {
      return is_own(peer) ||
             (peer.current && (peer.state == State::failed || now - peer.heard > 6 * period_));
    });
    if (all_said) break;
    std::this_thread::sleep_for(milliseconds(1));
  }
  // A last moment for beats that MPI has accepted but not yet written.
  for (int i = 0; i < 5; ++i) {
    service(Clock::now());
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace linerate::comm
