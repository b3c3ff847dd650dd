// submit() fills in the fingerprint and queues the request. loop() takes one request after the
// other. execute() tells the transport which collective begins, compares fingerprints in checked
// mode, and runs the schedule for the size. An error becomes the text that every wait() of this
// Work throws.
//
// Example: the main thread submits all-reduces A, B and C at 0, 1 and 2 ms, and each takes 5 ms.
// The progress thread runs A from 0 to 5 ms, B to 10 and C to 15. wait() of C at 3 ms returns at 15
// ms. Every rank must submit in this order, because a rank that begins with B would send B's bytes
// to ranks that wait for A's.
#include "linerate/comm/progress_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/comm/timeout.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
class ProgressQueue::QueuedWork final : public Work {
 public:
  explicit QueuedWork(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void sleep_until_done() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
    if (error_) throw CommError(*error_);
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  WorkTimes times() const override {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  void on_done(std::function<void()> action) override {
    {
      const std::lock_guard lock(mutex_);
      if (!done_) {
        action_ = std::move(action);
        return;
      }
    }
    action();
  }
  void finish(WorkTimes times, std::optional<std::string> error) {
    std::function<void()> action;
    {
      const std::lock_guard lock(mutex_);
      times_ = times;
      error_ = std::move(error);
      done_ = true;
      action = std::move(action_);
    }
    finished_.notify_all();
    if (action) action();
  }

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  WorkTimes times_;
  // Text, not an exception_ptr: each wait() throws an exception of its own, which no other thread
  // holds.
  std::optional<std::string> error_;
  std::function<void()> action_;
  bool done_ = false;
};

/// The deleter of the handles that callers have. The last copy waits until the Work is done,
/// because the progress thread may use the caller's memory until then. Two cases would make this
/// wait last until the timeout, so they end the run first. An exception unwinds on this rank, and
/// the peers wait for it. Or the handle goes inside another Work's action, on the very thread that
/// would have to run this Work.
struct ProgressQueue::WaitAtLast {
  std::shared_ptr<QueuedWork> work;
  std::weak_ptr<ProgressQueue> queue;  // gone: everything is done
  int unwinding = std::uncaught_exceptions();

  void operator()(Work*) const noexcept {
    if (work->done()) return;
    const std::shared_ptr<ProgressQueue> alive = queue.lock();
    if (!alive) return;
    // An action of another Work dropped this Work, which has not begun and never will.
    const bool own_thread = std::this_thread::get_id() == alive->thread_.get_id();
    if (own_thread) {
      alive->abort(fmt::format("\"{}\" was dropped by what ran on_done", work->name()));
      return;
    }
    if (std::uncaught_exceptions() > unwinding)
      alive->abort(fmt::format("an exception was thrown while \"{}\" was pending", work->name()));
    work->sleep_until_done();
  }
};

ProgressQueue::ProgressQueue(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)),
      pool_(transport_->chunk_bytes()),
      thread_([this] { loop(); }) {}

ProgressQueue::~ProgressQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  join();
}

void ProgressQueue::join() {
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

/// Called when the process exits. If collectives are under way, the run is ended first, because
/// their peers would wait for this rank until their timeout.
bool ProgressQueue::stop_at_exit(int status) {
  bool clean = true;
  {
    const std::lock_guard lock(mutex_);
    exiting_ = stopping_ = true;
    clean = pending_ == 0;
  }
  if (!clean) abort(fmt::format("it exits with status {} and collectives under way", status));
  wake_.notify_one();
  join();
  drained_.notify_all();
  return clean;
}

std::shared_ptr<QueuedGroup> ProgressQueue::whole(bool checked) {
  auto group = std::make_shared<QueuedGroup>();
  group->members.resize(to_index(transport_->size()));
  std::iota(group->members.begin(), group->members.end(), 0);
  group->rank = transport_->rank();
  group->checked = checked;
  return group;
}

std::shared_ptr<QueuedGroup> ProgressQueue::part(std::uint64_t number, std::string name,
                                                 std::vector<int> members, int rank,
                                                 std::shared_ptr<QueuedGroup> parent) {
  auto group = std::make_shared<QueuedGroup>();
  group->number = number;
  group->name = std::move(name);
  group->channel = std::make_unique<GroupChannel>(*transport_, members, rank);
  group->members = std::move(members);
  group->rank = rank;
  const std::lock_guard lock(mutex_);
  next_number_ = std::max(next_number_, number + 1);
  group->checked = parent->checked;
  group->parent = std::move(parent);
  return group;
}

std::uint64_t ProgressQueue::next_number() {
  const std::lock_guard lock(mutex_);
  return next_number_;
}

WorkPtr ProgressQueue::submit(Request request, CollectiveCall call) {
  QueuedGroup& group = *request.group;
  Fingerprint& print = request.fingerprint;
  print.call = call;
  print.dtype = request.output.dtype;
  print.set_name(request.name);
  print.set_group(group.number, group.name);
  request.work = std::make_shared<QueuedWork>(std::move(request.name));
  QueuedWork* const raw = request.work.get();
  WorkPtr work(raw, WaitAtLast{request.work, weak_from_this()});
  {
    const std::lock_guard lock(mutex_);
    if (exiting_) {
      raw->finish({}, fmt::format("{} \"{}\": the process exits", name_of(call), raw->name()));
      return work;
    }
    print.sequence = group.submitted;
    request.checked = group.checked;
    queue_.push_back(std::move(request));
    // From here on no call throws: a request in the queue is counted everywhere.
    ++group.submitted;
    ++group.unfinished;
    ++group.pending;
    ++pending_;
    transport_->submitted(group.members);
  }
  wake_.notify_one();
  return work;
}

/// Waits until the requests of a group are through, before its communicator goes. While an
/// exception passes, peers may never come, so the run is ended first.
void ProgressQueue::drain(const QueuedGroup& group, bool unwinding) {
  std::unique_lock lock(mutex_);
  if (unwinding && group.unfinished > 0) {
    lock.unlock();
    abort("an exception was thrown while collectives were under way");
    lock.lock();
  }
  drained_.wait(lock, [&] { return group.pending == 0 || exiting_; });
}

void ProgressQueue::abort(const std::string& reason) {
  transport_->abort(fmt::format("rank {} ended the run: {}", transport_->rank(), reason));
  {
    const std::lock_guard lock(mutex_);
    look_ = true;
  }
  wake_.notify_one();
}

Busy ProgressQueue::busy(std::string what, std::optional<Duration> at_most) {
  BusyNote note{std::move(what)};
  if (at_most)
    note.until = std::chrono::steady_clock::now() +
                 clock_time(*at_most, fmt::format("busy \"{}\"", note.what));
  const std::lock_guard lock(busy_mutex_);
  busy_.push_back(std::move(note));
  tell_busy();
  return Busy([queue = weak_from_this(), at = std::prev(busy_.end())] {
    const auto alive = queue.lock();
    if (!alive) return;
    const std::lock_guard again(alive->busy_mutex_);
    alive->busy_.erase(at);
    alive->tell_busy();
  });
}

/// Tells the transport the note that lasts longest.
void ProgressQueue::tell_busy() {
  const auto longest =
      std::max_element(busy_.begin(), busy_.end(), [](const BusyNote& a, const BusyNote& b) {
        return a.until && (!b.until || *a.until < *b.until);
      });
  transport_->set_busy(longest == busy_.end() ? std::nullopt : std::optional(*longest));
}

void ProgressQueue::set_checked(QueuedGroup& group, bool checked) {
  const std::lock_guard lock(mutex_);
  group.checked = checked;
}

/// The bytes moved for a group; for the whole job they are the transport's.
Traffic ProgressQueue::traffic(const QueuedGroup& group) const {
  if (group.channel == nullptr) return transport_->traffic();
  return {{group.sent_bytes}, {group.received_bytes}};
}

/// The progress thread. Between collectives it serves the transport once in a while, which keeps
/// signs of life going.
void ProgressQueue::loop() {
  std::unique_lock lock(mutex_);
  while (!exiting_) {
    if (queue_.empty()) {
      if (stopping_) break;
      wake_.wait_for(lock, transport_->idle_period(),
                     [this] { return stopping_ || look_ || !queue_.empty(); });
      look_ = false;
      if (queue_.empty()) {
        lock.unlock();
        transport_->service();
        lock.lock();
      }
      continue;
    }
    Request request = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    execute(request);
    lock.lock();
    if (--request.group->pending == 0) drained_.notify_all();
  }
  const bool cut_short = !queue_.empty();
  lock.unlock();
  if (cut_short) transport_->service();  // takes the reason that abort() has left there
  transport_->leave();
}

/// Counts for the group and its parents; the transport itself counts for the whole job.
void ProgressQueue::count_traffic(QueuedGroup& group, const Traffic& before) {
  const Traffic now = transport_->traffic();
  for (QueuedGroup* g = &group; g->parent != nullptr; g = g->parent.get()) {
    g->sent_bytes += (now.sent - before.sent).value;
    g->received_bytes += (now.received - before.received).value;
  }
}

Channel& ProgressQueue::channel_of(const QueuedGroup& group) {
  if (group.channel == nullptr) return *transport_;
  return *group.channel;
}

void ProgressQueue::execute(Request& request) {
  WorkTimes times{steady_ns(), 0};
  std::optional<std::string> error;
  const QueuedGroup& group = *request.group;
  Channel& channel = channel_of(group);
  const Traffic before = transport_->traffic();
  try {
    const bool compares = request.checked && channel.size() > 1;
    transport_->begin({group.members, &request.fingerprint, compares});
    if (compares) {
      compare_fingerprints(channel, request);
      times.start_ns = steady_ns();
    }
    run_schedule(channel, request);
  } catch (const CommError& e) {
    error = e.what();
  } catch (const std::exception& e) {  // out of memory, say: no schedule throws on its own
    error = fmt::format("rank {} left a collective: {}", transport_->rank(), e.what());
    transport_->give_up(*error);
  }
  transport_->end();
  times.end_ns = steady_ns();
  count_traffic(*request.group, before);
  {
    const std::lock_guard lock(mutex_);
    if (error && exiting_) return;
    // These counts come first, since a thread that waits for this Work may exit next, or throw.
    --pending_;
    --request.group->unfinished;
  }
  const std::shared_ptr<QueuedWork> work = std::move(request.work);
  work->finish(times, std::move(error));
}

/// Compares fingerprints, all to all with P-1 messages each. That is one latency deep, and every
/// rank reads the same P fingerprints, so all find the same mismatch. Ranks that are in different
/// groups at this moment meet here as well. Then other ranks of those groups may go on without
/// noticing, so that ends the run for all.
void ProgressQueue::compare_fingerprints(Channel& channel, const Request& request) {
  const std::vector<int>& members = request.group->members;
  const int rank = channel.rank();
  std::vector<Fingerprint> prints(members.size());
  std::vector<Transfer> sends(prints.size()), receives(prints.size());
  for (int step = 1; step < channel.size(); ++step) {
    const int peer = (rank + step) % channel.size();
    const auto i = to_index(peer);
    channel.receive(peer, &prints[i], sizeof(Fingerprint), receives[i]);
    channel.send(peer, &request.fingerprint, sizeof(Fingerprint), sends[i]);
  }
  prints[to_index(rank)] = request.fingerprint;
  for (std::size_t i = 0; i < prints.size(); ++i) {
    wait(channel, receives[i]);
    if (const auto disorder =
            find_disorder(transport_->rank(), request.fingerprint, members[i], prints[i]))
      channel.fail(*disorder);
    wait(channel, sends[i]);
  }
  if (const auto mismatch = find_mismatch(prints, members)) {
    transport_->compared(false);
    throw CommError(*mismatch);
  }
  transport_->compared(true);
}

void ProgressQueue::run_schedule(Channel& channel, const Request& request) {
  switch (request.fingerprint.call) {
    case CollectiveCall::all_reduce:
      if (!request.pieces.empty())
        return comm::all_reduce(channel, pool_, request.pieces, request.output);
      return comm::all_reduce(channel, pool_, request.output, request.fingerprint.reduce);
    case CollectiveCall::reduce_scatter:
      if (!request.pieces.empty())
        return comm::reduce_scatter(channel, pool_, request.pieces, request.output);
      return comm::reduce_scatter(channel, pool_, request.input, request.output,
                                  request.fingerprint.reduce);
    case CollectiveCall::all_gather:
    case CollectiveCall::all_gather_v:
      return comm::all_gather(channel, pool_, request.input, request.output, request.counts);
    case CollectiveCall::all_to_all:
      return comm::all_to_all(channel, pool_, request.input, request.output);
    case CollectiveCall::broadcast:
      return comm::broadcast(channel, pool_, request.output, request.root);
    case CollectiveCall::barrier:
      return comm::barrier(channel);
  }
}

}  // namespace linerate::comm
