// MPI has no call that sleeps until a message arrives and can be woken otherwise. So the progress
// thread polls: first without sleep, then with naps that grow with the time that it has waited.
// While it waits it sends and reads beats, and asks Liveness for a verdict.
//
// A failure is the hard part. Posted receives may be half filled, and MPI offers no way to take a
// half-sent message back. abandon() cancels what it can, waits for a grace, and else gives up MPI
// in this process, so that freed memory is never written.
#include "linerate/comm/mpi/mpi_channel.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "linerate/comm/liveness.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Back-off inside a collective. This polls without sleeping for kSpin after the last message. Then
// it sleeps between polls for an eighth of the time that it has waited so far, within these limits.
// A chunk takes 0.1 ms over shared memory. It takes 2 ms at 1 Gbit/s, and there the kernel's socket
// buffers keep the line busy during a nap.
constexpr Clock::duration kSpin = microseconds(20);
constexpr Clock::duration kShortestNap = microseconds(20);
constexpr Clock::duration kLongestNap = microseconds(500);
// Between collectives: the first look is after kFirstIdle. The pause doubles up to the period of
// the beats.
constexpr Clock::duration kFirstIdle = milliseconds(1);
// Inside a collective: a rank that has waited for this long sends a beat at once. So ranks that run
// different operations learn of it before a period is over.
constexpr Clock::duration kSayStuck = milliseconds(50);

/// Asks for short time slices (Linux 6.12): how long this thread wants to run at a time. The
/// scheduler serves a short request earlier.
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

/// Prefers the progress thread to compute threads. It works for microseconds at a time, while
/// compute threads never sleep. Its naps should end on time (the kernel rounds them up by 50 us),
/// and it should not wait for a compute thread's slice.
///
/// It asks for nice -10 and short slices. Over shared memory (two ranks, two cores) all-reduces
/// took 1.6 to 1.7 times as long next to computation with a nice of 0, and 1.1 to 1.3 times with
/// -10. The computation paid for it with 2.4 to 3.5 times its time, not 1.4 to 1.6. Over links of
/// 200 Mbit/s a nice of 0, -10 or -20 made no difference. Settings that the kernel refuses are left
/// out (a negative nice needs a privilege).
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

std::shared_ptr<Liveness> life_in(MPI_Comm world, Clock::duration timeout) {
  int rank = 0, size = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &size);
  return std::make_shared<Liveness>(rank, size, timeout, Clock::now());
}

/// The bits of a tag: 31 in Open MPI; MPI promises 15.
int tag_bits(MPI_Comm world) {
  int* most = nullptr;
  int found = 0;
  MPI_Comm_get_attr(world, MPI_TAG_UB, &most, &found);
  const auto values = static_cast<std::uint64_t>(found != 0 ? *most : 32767) + 1;
  return static_cast<int>(std::bit_width(values)) - 1;
}

// Ranks of one host read each other's memory by one system call (CMA), with a single copy and
// without the peer's help. Whether that works depends on the kernel, containers and pids, so it is
// tried. Each rank gathers the others' pids and the addresses of their random numbers, and reads
// the numbers. A rank on another host has no such pid, or another process has it, so the number is
// wrong.

/// One of Open MPI's settings as `mpirun --mca` and the user's environment hand it to a rank; empty
/// if it is not set. (MPI_T would also see settings files, but takes 0.2 s to start.)
std::string setting(const char* name) {
  const char* value = std::getenv((std::string("OMPI_MCA_") + name).c_str());
  return value == nullptr ? "" : value;
}

/// Whether Open MPI's setting `btl` allows shared memory. It is a list of transports, or with "^"
/// of those left out; empty: all.
bool lists_shared_memory(const std::string& transports) {
  const bool leaves_out = transports.starts_with('^');
  bool named = false;
  for (const std::string& name : split_outside_parentheses(transports.substr(leaves_out), ','))
    named = named || name == "vader" || name == "sm";
  return transports.empty() || named != leaves_out;
}

bool single_copies_allowed() {
  return lists_shared_memory(setting("btl")) &&
         setting("btl_vader_single_copy_mechanism") != "none";
}

/// The outcome of a read. All bytes were copied, or this process may not read that memory
/// (`denied`), or `problem` tells why the peer cannot be read.
struct ReadOutcome {
  bool denied = false;
  std::optional<std::string> problem{};
};

ReadOutcome read_memory(int peer, pid_t pid, std::uint64_t address, void* into, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(into);
  while (bytes > 0) {
    const iovec local{to, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      const int error = got == 0 ? EFAULT : errno;
      if (error == EPERM || error == ENOSYS || error == EACCES) return {.denied = true};
      return {
          .problem = fmt::format(
              "rank {}'s memory cannot be read ({}); the rank has ended or left this collective",
              peer, std::strerror(error))};
    }
    to += got, address += static_cast<std::uint64_t>(got), bytes -= to_index(got);
  }
  return {};
}

/// The pids of all ranks. Empty, on every rank alike, unless three things hold. All ranks want it;
/// MPI's own settings let it use shared memory with single copies; and every rank has read a word
/// of every other. Collective.
std::vector<pid_t> pids_to_read(MPI_Comm world, bool wanted) {
  int ranks = 0;
  MPI_Comm_size(world, &ranks);
  struct Word {
    std::uint64_t pid, address, value;
  };
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::uint64_t value =
      static_cast<std::uint64_t>(now) ^ (static_cast<std::uint64_t>(getpid()) << 40);
  const Word own{static_cast<std::uint64_t>(getpid()), reinterpret_cast<std::uintptr_t>(&value),
                 value};
  std::vector<Word> words(to_index(ranks));
  check_mpi(MPI_Allgather(&own, sizeof own, MPI_BYTE, words.data(), sizeof own, MPI_BYTE, world),
            "MPI_Allgather");
  std::vector<pid_t> pids;
  int works = wanted && single_copies_allowed() ? 1 : 0;
  for (int r = 0; r < ranks && works != 0; ++r) {
    const Word& word = words[to_index(r)];
    pids.push_back(static_cast<pid_t>(word.pid));
    std::uint64_t found = 0;
    read_memory(r, pids.back(), word.address, &found, sizeof found);
    if (found != word.value) works = 0;
  }
  // Also keeps `value` where it is until all have read it.
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &works, 1, MPI_INT, MPI_MIN, world), "MPI_Allreduce");
  if (works == 0 || ranks == 1) pids.clear();
  return pids;
}

// Beats are small MPI messages on a communicator of their own. The owner of MPI's thread calls
// service() while it waits in a collective, and once in a while between collectives.
//
// At exit the beats have a second use: ranks meet by them without MPI_Finalize (meet_or_leave()
// tells why). For example ranks 0 and 1 are done, and rank 2 exits with an error. Ranks 0 and 1
// wait in meet() with the state `done`. Rank 2's farewell() sends the state `failed`. So ranks 0
// and 1 print why they stop waiting and exit, too.

constexpr int kTag = 1;

/// The number of this process's world; the same on every rank, since all of them make worlds
/// together.
std::uint64_t next_world() {
  static std::uint64_t worlds = 0;
  return ++worlds;
}

/// Every rank sends every other a beat once a period, on a communicator of its own. All calls come
/// from the thread that owns MPI.
class MpiBeats {
 public:
  MpiBeats(MPI_Comm parent, std::shared_ptr<Liveness> life)
      : life_(std::move(life)),
        world_(next_world()),
        last_send_(Clock::now()),
        lines_(to_index(life_->size())) {
    check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    receive();
  }
  ~MpiBeats() { close(); }
  MpiBeats(const MpiBeats&) = delete;
  MpiBeats& operator=(const MpiBeats&) = delete;

  void set_state(Beat::State state) {
    life_->set_state(state);
    say_now();
  }
  /// The next service() sends, due or not.
  void say_now() {
    for (Line& line : lines_) line.current = false;
  }
  /// The run has failed. Peers learn of it with the next beat. The first failure counts, own or
  /// heard.
  void set_failure(const std::string& reason) {
    if (failure_) return;
    failure_ = reason;
    note_failure();
    say_now();
  }
  const std::optional<std::string>& failure() const { return failure_; }

  /// Takes beats that have arrived. Sends beats if a period has passed, or if there is news.
  void service(Clock::time_point now) {
    if (comm_ == MPI_COMM_NULL || !may_call_mpi()) return;
    life_->awake(now);
    take(now);
    send(now);
  }

  /// At exit: returns whether every rank succeeded, this one included. A rank that succeeded waits
  /// until all others have come here too, as MPI_Finalize would. Unlike MPI_Finalize, it learns of
  /// a rank that fails or falls silent.
  bool part(bool succeeded) {
    if (succeeded && meet()) return true;
    farewell();
    return false;
  }
  /// Gives back what belongs to MPI; no beats after this.
  void close() {
    if (comm_ == MPI_COMM_NULL || !may_call_mpi()) return;
    if (incoming_request_ != MPI_REQUEST_NULL) {
      MPI_Cancel(&incoming_request_);
      MPI_Wait(&incoming_request_, MPI_STATUS_IGNORE);
    }
    for (Line& line : lines_) {
      if (line.request != MPI_REQUEST_NULL) MPI_Wait(&line.request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&comm_);
  }

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

  std::optional<std::string> why_not_all_succeed(Clock::time_point now) {
    if (failure_) return failure_;
    for (int r = 0; r < life_->size(); ++r)
      if (life_->last_of(r).first.state == Beat::State::failed)
        return fmt::format("rank {} exits with an error; see what it printed", r);
    const auto silent = life_->silent(now);
    if (silent) set_failure(*silent);
    return silent;
  }

  /// Waits until all ranks are done. A peer that has left the world may compute for as long as it
  /// likes before it exits. A peer that takes part has a progress thread, which gives signs of
  /// life.
  bool meet() {
    set_state(Beat::State::done);
    Clock::duration nap = std::chrono::microseconds(100);
    while (true) {
      const Clock::time_point now = Clock::now();
      service(now);
      if (const auto reason = why_not_all_succeed(now)) {
        fmt::print(stderr, "rank {}: waiting to exit: {}\n", life_->rank(), *reason);
        return false;
      }
      if (all_peers_are(Beat::State::done, Clock::duration::max())) return true;
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, life_->period());
    }
  }

  /// After a failure: tells the others, and waits until all peers that still give signs of life
  /// exit too, or the grace is over. Otherwise the launcher might kill them before they have
  /// printed what happened.
  void farewell() {
    using std::chrono::milliseconds;
    const Clock::duration grace =
        std::clamp<Clock::duration>(life_->timeout() / 10, milliseconds(100), milliseconds(5000));
    set_state(Beat::State::failed);
    const Clock::time_point start = Clock::now();
    if (!may_call_mpi()) return std::this_thread::sleep_for(grace);  // the peers have heard
    while (Clock::now() - start < grace) {
      service(Clock::now());
      if (all_peers_are(Beat::State::failed, 6 * life_->period())) break;
      std::this_thread::sleep_for(milliseconds(1));
    }
    // A last moment for beats that MPI has accepted but not yet written.
    for (int i = 0; i < 5; ++i) {
      service(Clock::now());
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  /// Sends a beat to each peer. At most one message to a peer is in flight, so a peer that does not
  /// take its beats gets no more.
  void send(Clock::time_point now) {
    const bool due = now - last_send_ >= life_->period();
    if (due) last_send_ = now;
    for (int r = 0; r < life_->size(); ++r) {
      Line& line = lines_[to_index(r)];
      if (r == life_->rank() || (!due && line.current)) continue;
      int free = 1;
      if (line.request != MPI_REQUEST_NULL) {
        check_mpi(MPI_Test(&line.request, &free, MPI_STATUS_IGNORE), "MPI_Test");
      }
      if (free == 0) continue;
      line.outgoing = {.world = world_};
      line.outgoing.beat = life_->say(now, r, {&line.outgoing.shared, 1});
      if (failure_)
        std::memcpy(line.outgoing.failure.data(), failure_->data(),
                    std::min(failure_->size(), line.outgoing.failure.size() - 1));
      check_mpi(MPI_Isend(&line.outgoing, sizeof(Message), MPI_BYTE, r, kTag, comm_, &line.request),
                "MPI_Isend");
      line.current = true;
    }
  }

  void take(Clock::time_point now) {
    while (true) {
      int arrived = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&incoming_request_, &arrived, &status), "MPI_Test");
      if (arrived == 0) return;
      if (incoming_.world == world_) {
        life_->heard(status.MPI_SOURCE, incoming_.beat, incoming_.shared, now);
        if (incoming_.failure[0] != '\0') set_failure(incoming_.failure.data());
      }
      receive();
    }
  }

  void receive() {
    check_mpi(MPI_Irecv(&incoming_, sizeof(Message), MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_,
                        &incoming_request_),
              "MPI_Irecv");
  }

  /// Whether every other rank has this rank's last beat and has told that it is in this state, or
  /// has not been heard for so long.
  bool all_peers_are(Beat::State state, Clock::duration silence) const {
    for (int r = 0; r < life_->size(); ++r) {
      const auto [beat, heard] = life_->last_of(r);
      const bool holds = beat.state == state || Clock::now() - heard > silence;
      if (r != life_->rank() && !(lines_[to_index(r)].current && holds)) return false;
    }
    return true;
  }

  const std::shared_ptr<Liveness> life_;
  const std::uint64_t world_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  Clock::time_point last_send_;
  std::optional<std::string> failure_;
  Message incoming_;
  MPI_Request incoming_request_ = MPI_REQUEST_NULL;
  std::vector<Line> lines_;  // by rank
};

class MpiChannel final : public Transport {
 public:
  MpiChannel(MPI_Comm world, Clock::duration timeout, OneWorld claim)
      : Transport(life_in(world, timeout), tag_bits(world), pacer_of_process()),
        claim_(std::move(claim)),
        last_look_(Clock::now()),
        idle_(kFirstIdle) {
    check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    pids_ = pids_to_read(comm_, !is_paced());
    beats_ = std::make_shared<MpiBeats>(comm_, life_);
    set_parting([beats = beats_](bool succeeded) {
      const bool all_succeeded = beats->part(succeeded);
      if (all_succeeded) beats->close();
      return all_succeeded;
    });
  }
  /// The beats live on in the exit handler. After a failure MPI's own clean-up could wait for ranks
  /// that do not answer, so it is left out. A failure that only the caller has seen, an exception
  /// that passes through, counts as well.
  ~MpiChannel() override {
    const bool failed = beats_->failure() || std::uncaught_exceptions() > 0;
    if (!failed && may_call_mpi()) MPI_Comm_free(&comm_);
  }

  std::string name() const override { return "mpi"; }
  std::size_t chunk_bytes() const override { return std::size_t{256} << 10; }
  std::size_t latency_bytes() const override { return std::size_t{32} << 10; }

  void poll() override { test(); }
  void wait_some() override;
  bool can_read_peers() const override { return !pids_.empty(); }
  bool read(int peer, std::uint64_t address, void* into, std::size_t bytes) override;

  void abort(const std::string& reason) override {
    const std::lock_guard lock(abort_mutex_);
    if (aborted_) return;
    abort_reason_ = reason;
    aborted_ = true;
  }
  void begin(const Purpose& purpose) override {
    prefer_this_thread();
    idle_ = kFirstIdle;
    Transport::begin(purpose);
    hear_abort();
    if (beats_->failure()) fail(*beats_->failure());
  }
  std::chrono::nanoseconds idle_period() const override { return idle_; }
  void service() override {
    hear_abort();
    serve_beats(Clock::now());
    idle_ = std::min<Clock::duration>(2 * idle_, life_->period());
  }
  void leave() override {
    beats_->set_state(Beat::State::left);
    serve_beats(Clock::now());
  }

 private:
  void start(const PeerMessage& message) override;
  std::string end_messages(const std::string& reason, bool at_once) override {
    beats_->set_failure(reason);
    // Peers that hear of it give back what they hold of this rank's.
    if (!at_once || requests_.empty()) serve_beats(Clock::now());
    abandon(at_once && !requests_.empty());
    return *beats_->failure();
  }
  bool test();
  /// Drops finished requests, which MPI has set to null.
  void keep_unfinished() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      pending_[kept++] = pending_[i];
    }
    requests_.resize(kept);
    pending_.resize(kept);
  }
  /// A peer whose memory is gone has left this collective, most often because of a failure that it
  /// has heard of. So this waits a moment for beats: the failure that they tell outweighs what this
  /// rank has seen.
  [[noreturn]] void blame(const std::string& problem) {
    const Clock::time_point start = Clock::now();
    const Clock::duration patience =
        std::max<Clock::duration>(3 * life_->period(), milliseconds(100));
    while (!beats_->failure() && Clock::now() - start < patience) {
      hear_abort();
      serve_beats(Clock::now());
      std::this_thread::sleep_for(milliseconds(1));
    }
    fail(beats_->failure().value_or(problem));
  }
  /// Serves the beats while this rank waits, and fails if they or Liveness tell why.
  void look_after_peers(Clock::time_point now) {
    if (now - last_look_ < life_->period() / 8 && !aborted_.load(std::memory_order_relaxed)) return;
    hear_abort();
    last_look_ = now;
    serve_beats(now);
    if (beats_->failure()) fail(*beats_->failure());
    if (const auto reason = life_->judge(now)) fail(*reason);
  }
  /// A failure in MPI itself counts as a failure of the run.
  void serve_beats(Clock::time_point now) {
    try {
      beats_->service(now);
    } catch (const CommError& e) {
      beats_->set_failure(fmt::format("rank {}: {}", rank(), e.what()));
    }
  }
  void abandon(bool at_once);
  /// Takes an abort that another thread of this process asked for.
  void hear_abort() {
    if (!aborted_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(abort_mutex_);
    beats_->set_failure(abort_reason_);
  }

  OneWorld claim_;  // first: given back when everything else is gone
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::shared_ptr<MpiBeats> beats_;  // shared with the exit handler
  std::vector<pid_t> pids_;          // by rank; empty: their memory is not read
  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
  Clock::time_point last_look_;
  Clock::duration idle_{};
  std::vector<MPI_Request> requests_;
  std::vector<PeerMessage> pending_;  // pending_[i] belongs to requests_[i]
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
};

/// Ends the run if MPI refuses a message. The refused message is dropped here; fail() ends the
/// others, which are in flight.
void MpiChannel::start(const PeerMessage& message) {
  const auto& [sends, peer, data, bytes, tag, transfer] = message;
  pending_.push_back(message);
  MPI_Request* const request = &requests_.emplace_back(MPI_REQUEST_NULL);
  const int count = static_cast<int>(bytes), number = static_cast<int>(tag);
  const int code = sends ? MPI_Isend(data, count, MPI_BYTE, peer, number, comm_, request)
                         : MPI_Irecv(data, count, MPI_BYTE, peer, number, comm_, request);
  if (code == MPI_SUCCESS) return;
  requests_.pop_back();
  pending_.pop_back();
  fail(fmt::format("{} with rank {} failed: {}", sends ? "MPI_Isend" : "MPI_Irecv", peer,
                   error_text(code)));
}

bool MpiChannel::test() {
  start_due_sends();
  if (requests_.empty()) return false;
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                finished_.data(), statuses_.data());
  if (count == MPI_UNDEFINED || (code == MPI_SUCCESS && count == 0)) return false;
  std::optional<int> mismatch;  // the peer
  for (int i = 0; i < count && !mismatch; ++i) {
    const PeerMessage& pending = pending_[to_index(finished_[to_index(i)])];
    pending.transfer->done = true;
    if (pending.sends) continue;
    int bytes = 0;
    MPI_Get_count(&statuses_[to_index(i)], MPI_BYTE, &bytes);
    if (to_index(bytes) != pending.bytes || code != MPI_SUCCESS) mismatch = pending.peer;
  }
  keep_unfinished();
  if (mismatch)
    fail(fmt::format("rank {} sent a message of another size than expected", *mismatch));
  if (code != MPI_SUCCESS) fail("MPI refuses a message");
  return true;
}

void MpiChannel::wait_some() {
  const Clock::time_point start = Clock::now();
  // Open MPI's MPI_Testsome looks first and reads the sockets after that, so one call reports what
  // the call before has read. With one call a nap, each message was seen a nap late.
  for (bool said = false; !test() && !test();) {
    const Clock::time_point now = Clock::now();
    if (!said && now - start >= kSayStuck) {
      said = true;
      beats_->say_now();
    }
    look_after_peers(now);
    if (now - start < kSpin) continue;
    std::this_thread::sleep_until(
        or_next_departure(now + std::clamp((now - start) / 8, kShortestNap, kLongestNap)));
  }
  moved();
}

bool MpiChannel::read(int peer, std::uint64_t address, void* into, std::size_t bytes) {
  constexpr std::size_t kAtOnce = std::size_t{4} << 20;  // a millisecond
  auto* to = static_cast<std::byte*>(into);
  for (std::size_t at = 0; at < bytes; at += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, bytes - at);
    const ReadOutcome outcome = read_memory(peer, pids_[to_index(peer)], address + at, to + at, n);
    if (outcome.denied) return false;
    if (outcome.problem) blame(*outcome.problem);
    moved();
    look_after_peers(Clock::now());
  }
  count_read(bytes);
  return true;
}

/// When this returns, MPI uses none of the memory that was posted. A receive that no message has
/// met is cancelled. A receive that is half filled, or a send that is half taken, belongs to MPI
/// until its peer goes on. The peer does so unless it is stopped, dead, or has itself cancelled. So
/// after a grace this process calls MPI no more, and its memory is safe. If that memory is gone
/// already, there is no grace.
void MpiChannel::abandon(bool at_once) {
  drop_waiting_sends();
  const Clock::duration grace =
      std::clamp<Clock::duration>(life_->timeout() / 20, milliseconds(20), milliseconds(500));
  for (std::size_t i = 0; i < requests_.size() && !at_once; ++i)
    if (!pending_[i].sends) MPI_Cancel(&requests_[i]);
  const Clock::time_point start = Clock::now();
  while (!at_once) {
    for (MPI_Request& request : requests_) {
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    keep_unfinished();
    serve_beats(Clock::now());
    if (requests_.empty()) return;
    if (Clock::now() - start > grace) break;
    std::this_thread::sleep_for(microseconds(100));
  }
  call_mpi_no_more();
  requests_.clear();
  pending_.clear();
}

}  // namespace

std::unique_ptr<Transport> make_mpi_channel(MPI_Comm world, Clock::duration timeout,
                                            OneWorld claim) {
  return std::make_unique<MpiChannel>(world, timeout, std::move(claim));
}

}  // namespace linerate::comm
