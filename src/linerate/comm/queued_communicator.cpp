// The queue of submitted collectives and the one thread that runs them, first in, first out, for
// all communicators split from one. The thread sleeps while the queue is empty.
//
// One thread and one order keep the ranks in step. If two ranks submit in the same order, their
// n-th collective is the same one. For example rank 0 submits A at 1 ms and B at 2 ms. Rank 1
// submits A at 5 ms and B at 6 ms. Rank 0's thread is inside A from 1 ms on and waits. Both finish
// A, say at 8 ms, and then begin B together.
//
// A Work is done when its result is in the caller's memory. Then its action (on_done) runs on this
// thread, before the next collective begins.
//
// submit() fills in the fingerprint and queues the request. loop() takes one request after the
// other. execute() tells the transport which collective begins, compares fingerprints in checked
// mode, and runs the schedule for the size. An error becomes the text that every wait() of this
// Work throws.
//
// Example: the main thread submits all-reduces A, B and C at 0, 1 and 2 ms, and each takes 5 ms.
// The progress thread runs A from 0 to 5 ms, B to 10 and C to 15. wait() of C at 3 ms returns at 15
// ms. Every rank must submit in this order, because a rank that begins with B would send B's bytes
// to ranks that wait for A's.
#include "linerate/comm/queued_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <limits>
#include <list>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::comm {

std::string Communicator::unique_name(const std::string& wanted) {
  const std::lock_guard lock(names_mutex_);
  const int uses = ++names_[wanted];
  return uses == 1 ? wanted : fmt::format("{} ({})", wanted, uses);
}

WorkPtr Communicator::all_reduce(Buffer buffer, Reduce op, std::string name) {
  return submit({CollectiveCall::all_reduce, std::move(name), buffer, buffer, op});
}

WorkPtr Communicator::reduce_scatter(ConstBuffer input, Buffer output, Reduce op,
                                     std::string name) {
  return submit({CollectiveCall::reduce_scatter, std::move(name), input, output, op});
}

WorkPtr Communicator::all_reduce(std::vector<Piece> pieces, Buffer array, std::string name) {
  return submit({.call = CollectiveCall::all_reduce,
                 .name = std::move(name),
                 .input = array,
                 .output = array,
                 .pieces = std::move(pieces)});
}

WorkPtr Communicator::reduce_scatter(std::vector<Piece> pieces, Buffer array, std::string name) {
  return submit({.call = CollectiveCall::reduce_scatter,
                 .name = std::move(name),
                 .input = array,
                 .output = array,
                 .pieces = std::move(pieces)});
}

WorkPtr Communicator::all_gather(ConstBuffer input, Buffer output, std::string name) {
  return submit({CollectiveCall::all_gather, std::move(name), input, output});
}

WorkPtr Communicator::all_gather_v(ConstBuffer input, Buffer output,
                                   std::span<const std::int64_t> counts, std::string name) {
  return submit({.call = CollectiveCall::all_gather_v,
                 .name = std::move(name),
                 .input = input,
                 .output = output,
                 .counts = {counts.begin(), counts.end()}});
}

WorkPtr Communicator::all_to_all(ConstBuffer input, Buffer output, std::string name) {
  return submit({CollectiveCall::all_to_all, std::move(name), input, output});
}

WorkPtr Communicator::broadcast(Buffer buffer, int root, std::string name) {
  return submit({CollectiveCall::broadcast, std::move(name), buffer, buffer, Reduce::sum, root});
}

WorkPtr Communicator::barrier(std::string name) { return submit({.name = std::move(name)}); }

namespace {

/// One communicator as the queue sees it.
struct QueuedGroup {
  std::uint64_t number = 0;  // tells apart the communicators that two ranks share; 0: the whole job
  std::string name;          // empty for the whole job
  std::vector<int> members;  // ranks of the job, in the order of the ranks of the group
  int rank = 0;              // this one's, in the group
  std::optional<Channel> channel{};  // between the members
  std::shared_ptr<QueuedGroup>
      parent{};  // which counts this one's traffic too; null: the whole job
  std::atomic<std::int64_t> sent_bytes{0}, received_bytes{0};

  // Under the queue's mutex:
  bool checked = false;
  std::uint64_t submitted = 0;
  std::uint64_t unfinished = 0;  // collectives that are not done
  std::uint64_t pending = 0;     // those, and one whose waiters are being notified
};

class QueuedWork final : public Work {
 public:
  explicit QueuedWork(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void sleep_until_done() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
  }
  void wait() override {
    sleep_until_done();  // from then on the error stays as it is
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

class ProgressQueue : public std::enable_shared_from_this<ProgressQueue> {
 public:
  /// A submitted collective.
  struct Request {
    Fingerprint fingerprint{};
    Submission what{};
    std::shared_ptr<QueuedGroup> group{};
    bool checked = false;
    std::shared_ptr<QueuedWork> work{};
  };

  explicit ProgressQueue(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)),
        pool_(transport_->chunk_bytes()),
        thread_([this] { loop(); }) {}
  /// Finishes what was submitted, then leaves the job: peers that still wait for this rank hear of
  /// it.
  ~ProgressQueue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    join();
  }

  /// All ranks of the transport.
  std::shared_ptr<QueuedGroup> whole(bool checked) {
    std::vector<int> members(to_index(transport_->size()));
    std::iota(members.begin(), members.end(), 0);
    auto group = part(0, {}, std::move(members), transport_->rank(), nullptr);
    group->checked = checked;
    return group;
  }
  /// A group of ranks of the job that the members have agreed on.
  std::shared_ptr<QueuedGroup> part(std::uint64_t number, std::string name,
                                    std::vector<int> members, int rank,
                                    std::shared_ptr<QueuedGroup> parent) {
    auto group = std::make_shared<QueuedGroup>();
    group->number = number;
    group->name = std::move(name);
    group->members = std::move(members);
    group->rank = rank;
    group->channel.emplace(*transport_, group->members, rank);
    const std::lock_guard lock(mutex_);
    next_number_ = std::max(next_number_, number + 1);
    group->checked = parent && parent->checked;
    group->parent = std::move(parent);
    return group;
  }
  /// The smallest group number that this rank has not seen.
  std::uint64_t next_number() {
    const std::lock_guard lock(mutex_);
    return next_number_;
  }

  /// Queues a collective. The last copy of the handle waits for a Work that is pending. If that
  /// copy goes because an exception unwinds, it ends the run first.
  WorkPtr submit(Request request) {
    QueuedGroup& group = *request.group;
    Fingerprint& print = request.fingerprint;
    print.dtype = request.what.output.dtype;
    print.set_name(request.what.name);
    print.set_group(group.number, group.name);
    request.work = std::make_shared<QueuedWork>(std::move(request.what.name));
    QueuedWork* const raw = request.work.get();
    WorkPtr work(raw, WaitAtLast{request.work, weak_from_this()});
    {
      const std::lock_guard lock(mutex_);
      if (exiting_) {
        const auto call = name_of(print.call);
        raw->finish({}, fmt::format("{} \"{}\": the process exits", call, raw->name()));
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
  /// exception passes (`unwinding`), peers may never come, so the run is ended first.
  void drain(const QueuedGroup& group, bool unwinding) {
    std::unique_lock lock(mutex_);
    if (unwinding && group.unfinished > 0) {
      lock.unlock();
      abort("an exception was thrown while collectives were under way");
      lock.lock();
    }
    drained_.wait(lock, [&] { return group.pending == 0 || exiting_; });
  }
  /// As Communicator::abort and busy.
  void abort(const std::string& reason) {
    transport_->abort(fmt::format("rank {} ended the run: {}", transport_->rank(), reason));
    {
      const std::lock_guard lock(mutex_);
      look_ = true;
    }
    wake_.notify_one();
  }
  Busy busy(std::string what, std::optional<Duration> at_most) {
    BusyNote note{std::move(what)};
    if (at_most)
      note.until = std::chrono::steady_clock::now() +
                   clock_time(*at_most, fmt::format("busy \"{}\"", note.what));
    std::unique_lock lock(busy_mutex_);
    busy_.push_back(std::move(note));
    const auto at = std::prev(busy_.end());
    tell_busy();
    lock.unlock();
    return Busy([queue = weak_from_this(), at] {
      const auto alive = queue.lock();
      if (!alive) return;
      const std::lock_guard again(alive->busy_mutex_);
      alive->busy_.erase(at);
      alive->tell_busy();
    });
  }
  /// The process exits with this status while communicators exist. Ends the thread, so that the
  /// transport is called no more. Collectives that are pending stay so (a waiter must not act
  /// during an exit). They end the run, because their peers would wait for this rank until their
  /// timeout. Later submissions fail. Returns whether nothing was pending.
  bool stop_at_exit(int status) {
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
  void set_checked(QueuedGroup& group, bool checked) {
    const std::lock_guard lock(mutex_);
    group.checked = checked;
  }
  /// The bytes moved for a group; for the whole job they are the transport's.
  Traffic traffic(const QueuedGroup& group) const {
    if (!group.parent) return transport_->traffic();
    return {{group.sent_bytes}, {group.received_bytes}};
  }
  std::string transport() const { return transport_->name(); }

 private:
  /// The deleter of the handles that callers have. The last copy waits until the Work is done,
  /// because the progress thread may use the caller's memory until then. Two cases would make this
  /// wait last until the timeout, so they end the run first. An exception unwinds on this rank, and
  /// the peers wait for it. Or the handle goes inside another Work's action, on the very thread
  /// that would have to run this Work.
  struct WaitAtLast {
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
  void join() {
    const std::lock_guard lock(join_mutex_);
    if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  }

  /// Tells the transport the note that lasts longest.
  void tell_busy() {
    const auto longest =
        std::max_element(busy_.begin(), busy_.end(), [](const BusyNote& a, const BusyNote& b) {
          return a.until && (!b.until || *a.until < *b.until);
        });
    transport_->set_busy(longest == busy_.end() ? std::nullopt : std::optional(*longest));
  }

  /// The progress thread. Between collectives it serves the transport once in a while, which keeps
  /// signs of life going.
  void loop() {
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

  void execute(Request& request);

  /// Counts for the group and its parents; the transport itself counts for the whole job.
  void count_traffic(QueuedGroup& group, const Traffic& before) {
    const Traffic now = transport_->traffic();
    for (QueuedGroup* g = &group; g->parent != nullptr; g = g->parent.get()) {
      g->sent_bytes += (now.sent - before.sent).value;
      g->received_bytes += (now.received - before.received).value;
    }
  }

  /// Compares fingerprints, all to all with P-1 messages each. That is one latency deep, and every
  /// rank reads the same P fingerprints, so all find the same mismatch. Ranks that are in different
  /// groups at this moment meet here as well. Then other ranks of those groups may go on without
  /// noticing, so that ends the run for all.
  void compare_fingerprints(Channel& channel, const Request& request) {
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
      channel.wait_for(receives[i]);
      if (const auto disorder =
              find_disorder(transport_->rank(), request.fingerprint, members[i], prints[i]))
        channel.fail(*disorder);
      channel.wait_for(sends[i]);
    }
    if (const auto mismatch = find_mismatch(prints, members)) {
      transport_->compared(false);
      throw CommError(*mismatch);
    }
    transport_->compared(true);
  }

  void run_schedule(Channel& channel, const Submission& what) {
    switch (what.call) {
      case CollectiveCall::all_reduce:
        return comm::all_reduce(channel, pool_, what.output, what.op, what.pieces);
      case CollectiveCall::reduce_scatter:
        return comm::reduce_scatter(channel, pool_, what.input, what.output, what.op, what.pieces);
      case CollectiveCall::all_gather:
      case CollectiveCall::all_gather_v:
        return comm::all_gather(channel, pool_, what.input, what.output, what.counts);
      case CollectiveCall::all_to_all:
        return comm::all_to_all(channel, pool_, what.input, what.output);
      case CollectiveCall::broadcast:
        return comm::broadcast(channel, pool_, what.output, what.root);
      case CollectiveCall::barrier:
        return comm::barrier(channel);
    }
  }

  std::unique_ptr<Transport> transport_;
  ChunkPool pool_;
  std::mutex mutex_;
  std::condition_variable wake_, drained_;
  std::deque<Request> queue_;
  std::uint64_t next_number_ = 1;
  bool stopping_ = false;
  bool look_ = false;     // abort() has left a reason with the transport
  bool exiting_ = false;  // the process exits
  std::uint64_t pending_ = 0;
  std::mutex join_mutex_;
  std::mutex busy_mutex_;
  std::list<BusyNote> busy_;
  std::thread thread_;
};

void ProgressQueue::execute(Request& request) {
  WorkTimes times{steady_ns(), 0};
  std::optional<std::string> error;
  QueuedGroup& group = *request.group;
  Channel& channel = *group.channel;
  const Traffic before = transport_->traffic();
  try {
    const bool compares = request.checked && channel.size() > 1;
    transport_->begin({group.members, &request.fingerprint, compares});
    if (compares) {
      compare_fingerprints(channel, request);
      times.start_ns = steady_ns();
    }
    run_schedule(channel, request.what);
  } catch (const CommError& e) {
    error = e.what();
  } catch (const std::exception& e) {  // out of memory, say: no schedule throws on its own
    error = fmt::format("rank {} left a collective: {}", transport_->rank(), e.what());
    transport_->give_up(*error);
  }
  transport_->end();
  times.end_ns = steady_ns();
  count_traffic(group, before);
  {
    const std::lock_guard lock(mutex_);
    if (error && exiting_) return;
    // These counts come first, since a thread that waits for this Work may exit next, or throw.
    --pending_;
    --group.unfinished;
  }
  const std::shared_ptr<QueuedWork> work = std::move(request.work);
  work->finish(times, std::move(error));
}

// A communicator checks the arguments on this rank and fills in the part of the fingerprint that
// ranks must agree on. Then it hands the request to the queue. Errors of arguments are thrown
// before anything is submitted.

/// The arguments of a collective on this rank. Each check throws a UsageError that names it.
class Arguments {
 public:
  Arguments(const Submission& of, int rank, int size) : of_(of), rank_(rank), size_(size) {}

  void check() const {
    const std::int64_t in = of_.input.count.value, out = of_.output.count.value;
    const bool scatters = of_.call == CollectiveCall::reduce_scatter;
    require(of_.input.dtype == of_.output.dtype, "one dtype for input and output");
    require_memory(of_.input, of_.call == CollectiveCall::all_gather ? size_ : 1);
    require_memory(of_.output, scatters && !of_.pieces ? size_ : 1);
    if (of_.pieces) {
      require(!scatters || out % size_ == 0,
              fmt::format("an array of {} equal blocks, found {} elements", size_, out));
      return require_pieces();
    }
    switch (of_.call) {
      case CollectiveCall::all_reduce:
      case CollectiveCall::barrier:
        return;
      case CollectiveCall::reduce_scatter:
        return require(in == size_ * out,
                       fmt::format("an input of {} ranks x {} elements, found {}", size_, out, in));
      case CollectiveCall::all_gather:
        return require(
            out == size_ * in,
            fmt::format("an output of {} ranks x {} elements, found {}", size_, in, out));
      case CollectiveCall::all_gather_v:
        return require_counts();
      case CollectiveCall::all_to_all:
        require(in == out && in % size_ == 0,
                fmt::format("input and output of the same count, a multiple of {}", size_));
        return require(of_.input.data != of_.output.data || in == 0,
                       "separate memory for input and output");
      case CollectiveCall::broadcast:
        return require(of_.root >= 0 && of_.root < size_,
                       fmt::format("a root in 0..{}, found {}", size_ - 1, of_.root));
    }
  }

 private:
  void require(bool condition, const std::string& expected) const {
    if (!condition)
      throw UsageError(
          fmt::format("{} \"{}\": expected {}", name_of(of_.call), of_.name, expected));
  }

  /// `times` times the bytes fit into a signed 64-bit number, and a count above 0 has memory.
  void require_memory(const ConstBuffer& memory, int times) const {
    const std::int64_t count = memory.count.value;
    const std::int64_t most =
        std::numeric_limits<std::int64_t>::max() / size_of(memory.dtype) / std::max(times, 1);
    require(count >= 0 && count <= most,
            fmt::format("a count from 0 to {}, found {}", most, count));
    require(memory.data != nullptr || count == 0,
            fmt::format("memory for {} elements, found a null pointer", count));
  }

  /// The pieces make up the array, one after the other.
  void require_pieces() const {
    const Buffer& array = of_.output;
    require(is_floating(array.dtype), "a floating-point type for a sum of pieces");
    std::int64_t total = 0;
    for (const auto& [values, scale] : *of_.pieces) {
      require(values.dtype == array.dtype,
              fmt::format("pieces of the array's type {}, found {}", linerate::name_of(array.dtype),
                          linerate::name_of(values.dtype)));
      require_memory(values, 1);
      require(!__builtin_add_overflow(total, values.count.value, &total),
              "pieces whose counts' sum fits into 64 bits");
    }
    require(total == array.count.value,
            fmt::format("pieces of {} elements together, as the array has, found {}",
                        array.count.value, total));
  }

  void require_counts() const {
    require(static_cast<int>(of_.counts.size()) == size_,
            fmt::format("{} counts, one a rank, found {}", size_, of_.counts.size()));
    std::int64_t total = 0;
    for (const std::int64_t count : of_.counts)
      require(count >= 0 && !__builtin_add_overflow(total, count, &total),
              fmt::format("counts from 0 on whose sum fits into 64 bits, found {}", count));
    const std::int64_t own = of_.counts[to_index(rank_)];
    require(of_.input.count.value == own,
            fmt::format("an input of counts[{}] = {} elements, found {}", rank_, own,
                        of_.input.count.value));
    require(of_.output.count.value == total,
            fmt::format("an output of {} elements, the sum of the counts, found {}", total,
                        of_.output.count.value));
  }

  const Submission& of_;
  int rank_, size_;
};

/// A rank's choice when ranks split. Plain bytes, so that it travels as it is.
struct Choice {
  std::int64_t colour = kNoGroup;
  std::int64_t key = 0;
  std::uint64_t next_number = 0;  // the smallest group number that it has not seen
  std::uint64_t name_hash = 0;
  CutText<80, std::uint64_t> name{};
};

/// The error of a group whose ranks name it differently. Every rank of the parent looks at all
/// groups, so all throw or none.
std::optional<std::string> find_other_name(const std::vector<Choice>& choices,
                                           const std::vector<int>& ranks) {
  for (std::size_t b = 0; b < choices.size(); ++b) {
    for (std::size_t a = 0; a < b && choices[b].colour >= 0; ++a) {
      if (choices[a].colour != choices[b].colour) continue;
      if (choices[a].name_hash == choices[b].name_hash) break;  // a is the first of its colour
      return fmt::format(
          "ranks disagree on the name of their group (colour {}): rank {} says \"{}\", rank {} "
          "says \"{}\"; give it the same name on all of its ranks",
          choices[a].colour, ranks[a], choices[a].name.shown(), ranks[b], choices[b].name.shown());
    }
  }
  return std::nullopt;
}

/// A Communicator over any Transport: checks arguments and hands jobs to the queue that it shares
/// with the communicators split from it.
class QueuedCommunicator final : public Communicator {
 public:
  QueuedCommunicator(std::shared_ptr<ProgressQueue> queue, std::shared_ptr<QueuedGroup> group,
                     bool reads_pieces)
      : reads_pieces_(reads_pieces), queue_(std::move(queue)), group_(std::move(group)) {}
  ~QueuedCommunicator() override {
    queue_->drain(*group_, std::uncaught_exceptions() > unwinding_);
  }

  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->members.size()); }
  std::string transport() const override { return queue_->transport(); }

  bool reads_pieces() const override { return reads_pieces_; }
  WorkPtr submit(Submission what) override {
    Arguments(what, rank(), size()).check();
    Fingerprint print{.count = what.input.count.value, .call = what.call, .reduce = what.op};
    if (what.call == CollectiveCall::broadcast) print.root = group_->members[to_index(what.root)];
    if (what.call == CollectiveCall::all_gather_v) print.counts_hash = kHashStart;
    for (const std::int64_t count : what.counts)
      print.counts_hash = hash_value(static_cast<std::uint64_t>(count), print.counts_hash);
    return queue_->submit({.fingerprint = print, .what = std::move(what), .group = group_});
  }

  /// All ranks gather their choices, so each computes all groups alike without further messages.
  ///
  /// An example with colours 0, 1, 0 on ranks 0 to 2. Ranks 0 and 2 form a group, and rank 1 one of
  /// its own. Rank 2 is already in another group with number 1, so it has 2 as its next number, and
  /// ranks 0 and 1 have 1. The group of ranks 0 and 2 gets number 2, the greatest of its members'
  /// next numbers. So no two communicators of rank 2 have the same number.
  std::unique_ptr<Communicator> split(int colour, int key, std::string name) override {
    if (name.empty()) throw UsageError("split: expected a name for the group, found none");
    Choice own{.colour = std::max(colour, kNoGroup),
               .key = key,
               .next_number = queue_->next_number(),
               .name_hash = hash_bytes(name)};
    own.name.set(name);
    std::vector<Choice> choices(to_index(size()));
    const auto bytes = static_cast<std::int64_t>(sizeof(Choice));
    all_gather({&own, {bytes}, DType::u8}, {choices.data(), {size() * bytes}, DType::u8}, "split")
        ->wait();
    if (const auto other = find_other_name(choices, group_->members)) throw CommError(*other);
    if (colour < 0) return nullptr;

    // A number that no member has used, so two communicators that share a rank never have the same
    // one.
    std::uint64_t number = 0;
    std::vector<int> ranks;  // of the group, by their rank here
    for (int r = 0; r < size(); ++r) {
      const Choice& choice = choices[to_index(r)];
      if (choice.colour != colour) continue;
      number = std::max(number, choice.next_number);
      ranks.push_back(r);
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return choices[to_index(a)].key < choices[to_index(b)].key;
    });
    const auto own_place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    std::vector<int> members;
    for (const int r : ranks) members.push_back(group_->members[to_index(r)]);
    auto group = queue_->part(number, std::move(name), std::move(members),
                              static_cast<int>(own_place), group_);
    return std::make_unique<QueuedCommunicator>(queue_, std::move(group), false);
  }

  void abort(const std::string& reason) override { queue_->abort(reason); }
  using Communicator::busy;
  Busy busy(std::string what, std::optional<Duration> at_most) override {
    return queue_->busy(std::move(what), at_most);
  }
  void set_checked(bool checked) override { queue_->set_checked(*group_, checked); }
  Traffic traffic() const override { return queue_->traffic(*group_); }

 private:
  const bool reads_pieces_;               // not in groups
  std::shared_ptr<ProgressQueue> queue_;  // lives as long as the last of the family
  std::shared_ptr<QueuedGroup> group_;
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<Communicator> queued(std::unique_ptr<Transport> transport, bool checked,
                                     Stopper* stopper) {
  const bool reads_pieces = transport->can_read_peers();
  const auto queue = std::make_shared<ProgressQueue>(std::move(transport));
  if (stopper)
    *stopper = [weak = std::weak_ptr(queue)](int status) -> std::optional<bool> {
      const auto alive = weak.lock();
      return alive ? std::optional(alive->stop_at_exit(status)) : std::nullopt;
    };
  return std::make_unique<QueuedCommunicator>(queue, queue->whole(checked), reads_pieces);
}

}  // namespace linerate::comm
