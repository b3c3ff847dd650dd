#include "linerate/comm/mpi/mpi_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "linerate/comm/launcher.hpp"
#include "linerate/comm/mpi/mpi_channel.hpp"
#include "linerate/comm/mpi/mpi_process.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

std::unique_ptr<MpiChannel> make_channel(const WorldOptions& options, Clock::duration timeout) {
  const Clock::duration limit = start_time(options.start_timeout, timeout, "MPI");
  OneWorld claim;
  const std::jthread deadline = start_deadline(limit);
  start_mpi();
  auto channel = std::make_unique<MpiChannel>(MPI_COMM_WORLD, timeout, std::move(claim));
  OneWorld::set_made();
  return channel;
}

}  // namespace

bool have_mpi() { return true; }
bool mpi_in_use() { return mpi_started(); }

std::unique_ptr<Communicator> make_world(const WorldOptions& options) {
  auto channel = make_channel(options, clock_time(options.timeout, "MPI: timeout"));
  // This comes after the channel exists, so that ranks part as after any failure. Rank 0 has then
  // printed what is wrong before another rank's exit makes the launcher end it.
  require_ranks(channel->size(), options.expected_size);
  if (channel->size() == 1 && !options.independent)
    if (const auto problem = lonely_rank_problem()) throw InputError("ranks", *problem);
  auto world = std::make_unique<QueuedCommunicator>(
      std::move(channel),
      CommunicatorOptions{.timeout = options.timeout, .checked = options.checked});
  set_stopper([queue = world->queue()](int status) {
    const auto alive = queue.lock();
    if (!alive) return true;
    const bool clean = alive->stop_at_exit(status);
    OneWorld::set_quiet();
    return clean;
  });
  return world;
}

// Beats are small MPI messages on a communicator of their own. The owner of MPI's thread calls
// service() while it waits in a collective, and once in a while between collectives.
//
// At exit the beats have a second use: ranks meet by them without MPI_Finalize (mpi_process.cpp
// tells why). For example ranks 0 and 1 are done, and rank 2 exits with an error. Ranks 0 and 1
// wait in meet() with the state `done`. Rank 2's farewell() sends the state `failed`. So ranks 0
// and 1 print why they stop waiting and exit, too.

namespace {

constexpr int kTag = 1;

/// The number of this process's world; the same on every rank, since all of them make worlds
/// together.
std::uint64_t next_world() {
  static std::uint64_t worlds = 0;
  return ++worlds;
}

}  // namespace

MpiBeats::MpiBeats(MPI_Comm parent, std::shared_ptr<Liveness> life)
    : life_(std::move(life)),
      world_(next_world()),
      last_send_(Clock::now()),
      lines_(to_index(life_->size())) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  receive();
}

void MpiBeats::receive() {
  check_mpi(MPI_Irecv(&incoming_, sizeof(Message), MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_,
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
  for (Line& line : lines_) {
    if (line.request != MPI_REQUEST_NULL) MPI_Wait(&line.request, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&comm_);
}

void MpiBeats::say_now() {
  for (Line& line : lines_) line.current = false;
}

void MpiBeats::set_state(Beat::State state) {
  life_->set_state(state);
  say_now();
}

void MpiBeats::set_failure(const std::string& reason) {
  if (failure_) return;
  failure_ = reason;
  mark_failed();
  say_now();
}

void MpiBeats::service(Clock::time_point now) {
  if (comm_ == MPI_COMM_NULL || !may_call_mpi()) return;
  life_->awake(now);
  take(now);
  send(now);
}

void MpiBeats::take(Clock::time_point now) {
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

/// Sends a beat to each peer. At most one message to a peer is in flight, so a peer that does not
/// take its beats gets no more.
void MpiBeats::send(Clock::time_point now) {
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

/// Whether every other rank has this rank's last beat and `holds` is true of it.
bool MpiBeats::all_peers(const std::function<bool(int)>& holds) const {
  for (int r = 0; r < life_->size(); ++r)
    if (r != life_->rank() && !(lines_[to_index(r)].current && holds(r))) return false;
  return true;
}

bool MpiBeats::part(bool succeeded) {
  if (succeeded && meet()) return true;
  farewell();
  return false;
}

std::optional<std::string> MpiBeats::why_not_all_succeed(Clock::time_point now) {
  if (failure_) return failure_;
  for (int r = 0; r < life_->size(); ++r)
    if (life_->state_of(r) == Beat::State::failed)
      return fmt::format("rank {} exits with an error; see what it printed", r);
  const auto silent = life_->silent(now);
  if (silent) set_failure(*silent);
  return silent;
}

/// Waits until all ranks are done. A peer that has left the world may compute for as long as it
/// likes before it exits. A peer that takes part has a progress thread, which gives signs of life.
bool MpiBeats::meet() {
  set_state(Beat::State::done);
  Clock::duration nap = std::chrono::microseconds(100);
  while (true) {
    const Clock::time_point now = Clock::now();
    service(now);
    if (const auto reason = why_not_all_succeed(now)) {
      fmt::print(stderr, "rank {}: waiting to exit: {}\n", life_->rank(), *reason);
      return false;
    }
    if (all_peers([this](int r) { return life_->state_of(r) == Beat::State::done; })) return true;
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, life_->period());
  }
}

/// After a failure: tells the others, and waits until all peers that still give signs of life exit
/// too, or the grace is over. Otherwise the launcher might kill them before they have printed what
/// happened.
void MpiBeats::farewell() {
  using std::chrono::milliseconds;
  const Clock::duration grace =
      std::clamp<Clock::duration>(life_->timeout() / 10, milliseconds(100), milliseconds(5000));
  set_state(Beat::State::failed);
  const Clock::time_point start = Clock::now();
  if (!may_call_mpi()) return std::this_thread::sleep_for(grace);  // the peers have heard
  while (Clock::now() - start < grace) {
    const Clock::time_point now = Clock::now();
    service(now);
    const bool all_said = all_peers([&](int r) {
      return life_->state_of(r) == Beat::State::failed ||
             now - life_->last_heard(r) > 6 * life_->period();
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
