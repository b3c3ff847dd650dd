// Each rank is a thread with a mailbox. start() puts an envelope into the receiver's mailbox.
// The receiver pairs envelopes with its posted receives by sender and tag, copies, and gives the
// envelope back, so that the sender's transfer is done.
//
// An example. Rank 0 sends 1 MB to rank 1 at 1 ms: the envelope points to rank 0's memory, and rank
// 0 may not touch it. Rank 1 comes at 3 ms, finds the envelope and copies until 3.2 ms. Then rank
// 0's transfer is done. A message of 100 bytes is copied into the envelope at 1 ms, so rank 0 goes
// on at once.
//
// Ranks sleep on their own mailbox. A message wakes its receiver only if the receiver has posted
// the receive for it. A thread that wakes for nothing would take the processor from computation.
#include "linerate/comm/thread/thread_channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <limits>
#include <list>
#include <thread>
#include <utility>

#include "linerate/comm/queued_communicator.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {

/// Messages of at most so many bytes carry their bytes with them. So the sender goes on at once and
/// need not be woken again, as in MPI's eager protocol. Larger ones are copied out of the sender's
/// memory.
constexpr std::size_t kEagerBytes = 4096;

/// A message that its receiver has not taken yet.
struct Envelope {
  /// The peer is the sender. The data are the sender's memory, or `own`. The transfer is the
  /// sender's, if the sender waits for it.
  PeerMessage message;
  std::vector<std::byte> own;  // of a small message

  void keep_bytes() {
    const auto* const first = static_cast<const std::byte*>(message.data);
    own.assign(first, first + message.bytes);
    message.data = own.data();
    message.transfer = nullptr;
  }
  bool fits(const PeerMessage& posted) const {
    return posted.peer == message.peer && posted.tag == message.tag;
  }
};

/// The transfer that a sleeping rank waits for; any, if it is null. The rank also wakes for a
/// message whose sender cannot go on before it is copied.
struct Asleep {
  const std::list<PeerMessage>* posted;
  const Transfer* awaited;

  bool wakes_for(const Envelope& e) const {
    return std::any_of(posted->begin(), posted->end(), [&](const PeerMessage& p) {
      return e.fits(p) && (e.message.transfer != nullptr || wakes_for(p.transfer));
    });
  }
  bool wakes_for(const Transfer* finished) const {
    return awaited == nullptr || awaited == finished;
  }
};

struct ThreadWorld::Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Asleep> asleep;  // its rank; else only failures and leaving ranks wake it
  std::list<Envelope> arrived;
  std::vector<int> copying;     // per sender: messages being copied out of its memory right now
  std::vector<Transfer*> sent;  // this rank's sends that their receivers have copied
  const std::shared_ptr<Liveness> life;  // of its rank: the others read it

  Mailbox(int rank, int ranks, Clock::duration timeout)
      : copying(to_index(ranks)),
        life(std::make_shared<Liveness>(rank, ranks, timeout, Clock::now())) {}
};

ThreadWorld::ThreadWorld(int size, Clock::duration timeout, std::size_t chunk_bytes,
                         std::size_t latency_bytes, bool reads_peers)
    : timeout_(timeout),
      chunk_bytes_(chunk_bytes),
      latency_bytes_(latency_bytes),
      reads_peers_(reads_peers),
      reads_left_(to_index(size), std::numeric_limits<std::int64_t>::max()) {
  for (int r = 0; r < size; ++r) boxes_.push_back(std::make_unique<Mailbox>(r, size, timeout));
}

ThreadWorld::~ThreadWorld() = default;

void ThreadWorld::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = reason;
  }
  wake_all();
}

std::optional<std::string> ThreadWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ThreadWorld::wake_all() {
  for (const auto& box : boxes_) {
    { const std::lock_guard lock(box->mutex); }  // a waiter is either before its check or asleep
    box->changed.notify_all();
  }
}

class ThreadChannel final : public Transport {
 public:
  ThreadChannel(ThreadWorld& world, int rank)
      : Transport(world.boxes_[to_index(rank)]->life, kTagBits, pacer_of_thread()),
        world_(world),
        keep_(world.weak_from_this().lock()),
        rank_(rank),
        own_(box(rank)) {}

  std::string name() const override { return "thread"; }
  std::size_t chunk_bytes() const override { return world_.chunk_bytes_; }
  std::size_t latency_bytes() const override { return world_.latency_bytes_; }

  void poll() override { take_arrived(); }
  void wait_some() override;
  void wait_for(const Transfer& transfer) override;
  bool can_read_peers() const override { return world_.reads_peers_ && !is_paced(); }
  bool read(int, std::uint64_t address, void* into, std::size_t bytes) override {
    if (world_.reads_left(rank_)-- <= 0) return false;
    count_read(bytes);
    if (bytes > 0) std::memcpy(into, reinterpret_cast<const void*>(address), bytes);
    return true;
  }

  void abort(const std::string& reason) override { world_.fail(reason); }
  void begin(const Purpose& purpose) override {
    Transport::begin(purpose);
    if (const auto reason = world_.failure()) fail(*reason);
  }
  void leave() override {
    life_->set_state(Beat::State::left);
    world_.wake_all();
  }

 private:
  struct Match {
    Envelope envelope;
    PeerMessage into;
  };

  void start(const PeerMessage& message) override;
  std::string end_messages(const std::string& reason, bool) override {
    world_.fail(reason);
    abandon();
    return reason;
  }
  ThreadWorld::Mailbox& box(int rank) { return *world_.boxes_[to_index(rank)]; }
  static constexpr int kTagBits = 62;
  bool take_arrived();
  std::vector<Match> take_matches();
  bool collect_sent();
  bool take_or_sleep(const Transfer* awaited);
  bool is_awake() const;
  void copy(const Match& match);
  void give_back(const PeerMessage& sent);
  std::optional<std::string> judge();
  void abandon();

  ThreadWorld& world_;
  std::shared_ptr<ThreadWorld> keep_;
  int rank_;
  ThreadWorld::Mailbox& own_;
  std::list<PeerMessage> posted_;
  bool sent_at_once_ = false;  // since the last look: nobody will wake this rank for it
};

std::unique_ptr<Transport> ThreadWorld::channel(int rank) {
  return std::make_unique<ThreadChannel>(*this, rank);
}

void ThreadChannel::start(const PeerMessage& message) {
  if (!message.sends) return posted_.push_back(message);
  Envelope envelope{message, {}};
  envelope.message.peer = rank_;
  message.transfer->done = message.bytes <= kEagerBytes;
  if (message.transfer->done) envelope.keep_bytes();
  sent_at_once_ |= message.transfer->done;
  ThreadWorld::Mailbox& target = box(message.peer);
  bool wakes = false;
  {
    const std::lock_guard lock(target.mutex);
    wakes = target.asleep && target.asleep->wakes_for(envelope);
    target.arrived.push_back(std::move(envelope));
  }
  if (wakes) target.changed.notify_all();
}

/// Pairs messages with receives, in one look at the mailbox. Two looks could let a message that
/// arrives in between overtake an earlier one.
std::vector<ThreadChannel::Match> ThreadChannel::take_matches() {
  std::vector<Match> matches;
  const std::lock_guard lock(own_.mutex);
  for (auto posted = posted_.begin(); posted != posted_.end();) {
    const auto found = std::find_if(own_.arrived.begin(), own_.arrived.end(),
                                    [&](const Envelope& e) { return e.fits(*posted); });
    if (found == own_.arrived.end()) {
      ++posted;
      continue;
    }
    if (found->message.transfer != nullptr) ++own_.copying[to_index(found->message.peer)];
    matches.push_back({std::move(*found), *posted});
    own_.arrived.erase(found);
    posted = posted_.erase(posted);
  }
  return matches;
}

void ThreadChannel::copy(const Match& match) {
  const PeerMessage &sent = match.envelope.message, &into = match.into;
  if (sent.bytes == into.bytes && into.bytes > 0) std::memcpy(into.data, sent.data, into.bytes);
  if (sent.transfer != nullptr) give_back(sent);
  into.transfer->done = true;
}

/// Tells the sender that it may use its memory again.
void ThreadChannel::give_back(const PeerMessage& sent) {
  ThreadWorld::Mailbox& sender = box(sent.peer);
  bool wakes = false;
  {
    const std::lock_guard lock(sender.mutex);
    wakes = sender.asleep && sender.asleep->wakes_for(sent.transfer);
    sender.sent.push_back(sent.transfer);
  }
  if (wakes) sender.changed.notify_all();
  {
    const std::lock_guard lock(own_.mutex);
    --own_.copying[to_index(sent.peer)];
  }
  own_.changed.notify_all();  // a sender that gives up waits for this
}

bool ThreadChannel::collect_sent() {
  std::vector<Transfer*> sent;
  {
    const std::lock_guard lock(own_.mutex);
    sent.swap(own_.sent);
  }
  for (Transfer* transfer : sent) transfer->done = true;
  return !sent.empty();
}

bool ThreadChannel::take_arrived() {
  start_due_sends();
  const bool sent = std::exchange(sent_at_once_, false) | collect_sent();
  const std::vector<Match> matches = take_matches();
  for (const Match& match : matches) copy(match);
  for (const auto& [envelope, into] : matches)
    if (envelope.message.bytes != into.bytes)
      fail(fmt::format("rank {} sent a message of {} bytes where {} were expected", into.peer,
                       envelope.message.bytes, into.bytes));
  return sent || !matches.empty();
}

void ThreadChannel::wait_some() {
  while (!take_or_sleep(nullptr)) {
  }
  moved();
}

/// Waits for one transfer. Small messages of a comparison that come before the awaited one do not
/// wake this rank.
void ThreadChannel::wait_for(const Transfer& transfer) {
  while (!transfer.done) {
    if (take_or_sleep(&transfer)) moved();
  }
}

/// Whether a transfer has finished. If none has, sleeps until one may have, or until it is time to
/// look at the others again. Messages that were sent before a failure are taken after it. So a
/// collective in which all others have done their part does not fail because this rank looks late.
bool ThreadChannel::take_or_sleep(const Transfer* awaited) {
  const auto look_again =
      std::min<Clock::duration>(world_.timeout_ / 20, std::chrono::milliseconds(50));
  if (take_arrived()) return true;
  if (const auto reason = judge()) {
    if (take_arrived()) return true;
    fail(*reason);
  }
  std::unique_lock lock(own_.mutex);
  own_.asleep = Asleep{&posted_, awaited};
  if (!is_awake()) own_.changed.wait_until(lock, or_next_departure(Clock::now() + look_again));
  own_.asleep.reset();
  return false;
}

/// Whether the message or transfer that this rank would sleep for is here already. Called under the
/// mutex.
bool ThreadChannel::is_awake() const {
  const Asleep& sleep = *own_.asleep;
  return world_.failure() ||
         std::any_of(own_.sent.begin(), own_.sent.end(),
                     [&](const Transfer* sent) { return sleep.wakes_for(sent); }) ||
         std::any_of(own_.arrived.begin(), own_.arrived.end(),
                     [&](const Envelope& e) { return sleep.wakes_for(e); });
}

/// The error of this collective, if there is one. Threads cannot be stopped one by one, so every
/// peer counts as heard of just now.
std::optional<std::string> ThreadChannel::judge() {
  if (auto reason = world_.failure()) return reason;
  const Clock::time_point now = Clock::now();
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    SharedWork shared;
    const Beat beat = box(r).life->say(now, rank_, {&shared, 1});
    life_->heard(r, beat, shared, now);
  }
  // Peers that have failed go on to their next collectives: then the first failure counts.
  if (const auto reason = life_->judge(now)) world_.fail(*reason);
  return world_.failure();
}

/// After this no thread touches the posted memory. Messages that carry their bytes stay, because
/// they may be all that a peer lacks of a collective that this rank has left.
void ThreadChannel::abandon() {
  drop_waiting_sends();
  posted_.clear();
  for (const auto& target : world_.boxes_) {
    std::unique_lock lock(target->mutex);
    std::erase_if(target->arrived, [this](const Envelope& e) {
      return e.message.peer == rank_ && e.message.transfer != nullptr;
    });
    target->changed.wait(lock, [&] { return target->copying[to_index(rank_)] == 0; });
  }
  const std::lock_guard lock(own_.mutex);
  own_.sent.clear();
}

// A rank that throws ends the run for the others, which else would wait for it until the timeout.
// Its exception is the one that the caller gets, and theirs only say that it failed.

namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

void run_ranks(int n, const std::function<void(Communicator&)>& f,
               const CommunicatorOptions& options) {
  if (n < 1) throw UsageError(fmt::format("run_ranks: expected at least 1 rank, found {}", n));
  // Shared with the channels: a group that f hands out keeps its rank's channel.
  const auto world =
      std::make_shared<ThreadWorld>(n, clock_time(options.timeout, "run_ranks: timeout"));
  std::mutex mutex;
  std::exception_ptr first;
  const auto run_one = [&](int rank) {
    const auto communicator = queued(world->channel(rank), options.checked);
    try {
      f(*communicator);
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      {
        const std::lock_guard lock(mutex);
        if (!first) first = error;
      }
      world->fail(fmt::format("rank {} failed: {}", rank, text_of(error)));
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(run_one, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace linerate::comm
