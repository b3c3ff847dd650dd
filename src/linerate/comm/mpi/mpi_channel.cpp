#include "linerate/comm/mpi/mpi_channel.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "linerate/comm/mpi/mpi_process.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Back-off inside a collective: poll without sleeping for kSpin after the last message, then sleep
// between polls for an eighth of what has been waited so far, within these limits. A chunk takes
// 0.1 ms over shared memory and 2 ms at 1 Gbit/s, where the kernel's socket buffers carry the line
// over a nap.
constexpr Clock::duration kSpin = microseconds(20);
constexpr Clock::duration kShortestNap = microseconds(20);
constexpr Clock::duration kLongestNap = microseconds(500);
// Between collectives: first look again after kFirstIdle, doubling to the period of the beats.
constexpr Clock::duration kFirstIdle = milliseconds(1);

/// Linux 6.12: how long this thread wants to run at a time. A short request is served earlier.
void ask_for_short_slices(std::int32_t nice, std::uint64_t nanoseconds) {
  struct {
    std::uint32_t size = 48, policy = 0;  // the layout of struct sched_attr, SCHED_OTHER
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  attributes.nice = nice;
  attributes.runtime = nanoseconds;
  syscall(SYS_sched_setattr, 0, &attributes, 0u);
}

/// The progress thread works for microseconds at a time, beside compute threads that never sleep: a
/// 60 MB all-reduce beside one took 910 ms with the kernel's defaults, 130 ms with these. Its naps
/// should end on time (the kernel rounds them up by 50 us), and it should not queue behind a
/// compute thread's slice. What the kernel does not grant (a negative nice needs a privilege) is
/// done without.
void prefer_this_thread() {
  thread_local const bool done = [] {
    prctl(PR_SET_TIMERSLACK, 1);
    constexpr int kNice = -10;
    const bool preferred = setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice) == 0;
    ask_for_short_slices(preferred ? kNice : getpriority(PRIO_PROCESS, 0), 100'000);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

MpiChannel::MpiChannel(MPI_Comm world, Clock::duration timeout, OneWorld claim)
    : claim_(std::move(claim)), timeout_(timeout), last_look_(Clock::now()), idle_(kFirstIdle) {
  check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  memory_ = PeerMemory::open(comm_);
  beats_ = std::make_shared<MpiBeats>(comm_, timeout);
}

/// The beats live on in the exit handler. After a failure (also one that only the caller knows of:
/// an exception passes through) MPI's own clean-up could wait for ranks that do not answer.
MpiChannel::~MpiChannel() {
  const bool failed = beats_->failure() || std::uncaught_exceptions() > 0;
  set_parting([beats = std::move(beats_)](bool succeeded) { return beats->part(succeeded); });
  if (!failed) MPI_Comm_free(&comm_);
}

/// The how-manieth collective this is between the two ranks, comparison or payload, and for payload
/// of which communicator. Messages between two ranks do not overtake and both agree on the order,
/// so the tag only has to make disagreement show: the comparisons of different communicators meet,
/// which tells them apart, and their payloads do not. 1021 collectives would have to be under way
/// between two ranks before those of two groups could be taken for one another.
int MpiChannel::tag(int peer) const {
  constexpr std::uint64_t kSpan = 1u << 13;  // MPI promises tags up to 32767
  constexpr std::uint64_t kGroupStep = 1021;
  const std::uint64_t turn = beats_->begun()[static_cast<std::size_t>(peer)];
  const std::uint64_t group = comparing_ ? 0 : kGroupStep * purpose_.group;
  return static_cast<int>(2 * ((turn + group) % kSpan) + (comparing_ ? 1 : 0));
}

void MpiChannel::begin(const Purpose& purpose) {
  prefer_this_thread();
  purpose_ = purpose;
  comparing_ = false;
  idle_ = kFirstIdle;
  beats_->begin(purpose_.members, Clock::now());
  hear_abort();
  if (beats_->failure()) fail(*beats_->failure());
}

void MpiChannel::send(int peer, const void* data, std::size_t bytes, Transfer& transfer) {
  transfer.done = false;
  if (!comparing_) sent_bytes_ += static_cast<std::int64_t>(bytes);
  requests_.push_back(MPI_REQUEST_NULL);
  pending_.push_back({&transfer, bytes, false});
  check_mpi(
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag(peer), comm_, &requests_.back()),
      "MPI_Isend");
}

void MpiChannel::receive(int peer, void* data, std::size_t bytes, Transfer& transfer) {
  transfer.done = false;
  if (!comparing_) received_bytes_ += static_cast<std::int64_t>(bytes);
  requests_.push_back(MPI_REQUEST_NULL);
  pending_.push_back({&transfer, bytes, true});
  check_mpi(
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag(peer), comm_, &requests_.back()),
      "MPI_Irecv");
}

bool MpiChannel::test() {
  if (requests_.empty()) return false;
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                finished_.data(), statuses_.data());
  if (count == MPI_UNDEFINED || (code == MPI_SUCCESS && count == 0)) return false;
  bool mismatch = code != MPI_SUCCESS;
  for (int i = 0; i < count && !mismatch; ++i) {
    const Pending& pending =
        pending_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])];
    pending.transfer->done = true;
    if (!pending.receiving) continue;
    int bytes = 0;
    MPI_Get_count(&statuses_[static_cast<std::size_t>(i)], MPI_BYTE, &bytes);
    mismatch = static_cast<std::size_t>(bytes) != pending.bytes;
  }
  std::size_t kept = 0;  // MPI has set finished requests to null
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    pending_[kept++] = pending_[i];
  }
  requests_.resize(kept);
  pending_.resize(kept);
  if (mismatch) {
    fail(
        "a message of another size arrived than was expected: the ranks run different operations "
        "here (turn checked mode on)");
  }
  return true;
}

void MpiChannel::wait_some() {
  if (test()) {
    beats_->liveness().stuck_since(Clock::now());
    return;
  }
  const Clock::time_point start = Clock::now();
  while (true) {
    const bool any = test();
    const Clock::time_point now = Clock::now();
    if (any) {
      beats_->liveness().stuck_since(now);
      return;
    }
    look_after_peers(now);
    if (now - start < kSpin) continue;
    std::this_thread::sleep_for(std::clamp((now - start) / 8, kShortestNap, kLongestNap));
  }
}

void MpiChannel::read(int peer, std::uint64_t address, void* into, std::size_t bytes) {
  constexpr std::size_t kAtOnce = std::size_t{4} << 20;  // a millisecond
  count_read(bytes);
  auto* to = static_cast<std::byte*>(into);
  for (std::size_t at = 0; at < bytes; at += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, bytes - at);
    if (const auto problem = memory_->read(peer, address + at, to + at, n)) fail(*problem);
    const Clock::time_point now = Clock::now();
    beats_->liveness().stuck_since(now);
    look_after_peers(now);
  }
}

void MpiChannel::abort(const std::string& reason) {
  const std::lock_guard lock(abort_mutex_);
  if (aborted_) return;
  abort_reason_ = reason;
  aborted_ = true;
}

/// What another thread of this process has asked for.
void MpiChannel::hear_abort() {
  if (!aborted_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(abort_mutex_);
  beats_->set_failure(abort_reason_);
}

/// Beats go on while this rank waits, and tell whom it waits for.
void MpiChannel::look_after_peers(Clock::time_point now) {
  if (now - last_look_ < beats_->period() / 8 && !aborted_.load(std::memory_order_relaxed)) return;
  hear_abort();
  last_look_ = now;
  beats_->service(now);
  if (beats_->failure()) fail(*beats_->failure());
  if (const auto reason = beats_->liveness().verdict(purpose_.members, beats_->begun(), now))
    fail(*reason);
}

void MpiChannel::service() {
  hear_abort();
  beats_->service(Clock::now());
  idle_ = std::min<Clock::duration>(2 * idle_, beats_->period());
}

void MpiChannel::abandon() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (pending_[i].receiving) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
  requests_.clear();
  pending_.clear();
}

void MpiChannel::fail(const std::string& reason) {
  abandon();
  beats_->set_failure(reason);
  beats_->service(Clock::now());
  throw CommError(purpose_.what + ": " + *beats_->failure());
}

void MpiChannel::leave() {
  beats_->set_state(MpiBeats::State::left);
  beats_->service(Clock::now());
}

}  // namespace linerate::comm
