// Each operation checks its arguments on this rank and fills in the part of the fingerprint that
// ranks must agree on. Then it hands the request to the queue. Errors of arguments are thrown
// before anything is submitted.
#include "linerate/comm/queued_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::comm {
namespace {

void require(bool condition, std::string_view operation, const std::string& name,
             const std::string& expected) {
  if (!condition) {
    throw UsageError(fmt::format("{} \"{}\": expected {}", operation, name, expected));
  }
}

/// Throws UsageError unless `times` times the bytes fit into a signed 64-bit number, and a count
/// above 0 has memory.
void require_memory(const void* data, Elements count, DType dtype, int times,
                    std::string_view operation, const std::string& name) {
  const std::int64_t most =
      std::numeric_limits<std::int64_t>::max() / size_of(dtype) / std::max(times, 1);
  require(count.value >= 0 && count.value <= most, operation, name,
          fmt::format("a count from 0 to {}, found {}", most, count.value));
  require(data != nullptr || count.value == 0, operation, name,
          fmt::format("memory for {} elements, found a null pointer", count.value));
}

/// Throws UsageError unless the pieces make up the array, one after the other.
void require_pieces(std::span<const Piece> pieces, const Buffer& array, std::string_view operation,
                    const std::string& name) {
  require(is_floating(array.dtype), operation, name, "a floating-point type for a sum of pieces");
  std::int64_t total = 0;
  for (const Piece& piece : pieces) {
    const ConstBuffer& values = piece.values;
    require(values.dtype == array.dtype, operation, name,
            fmt::format("pieces of the array's type {}, found {}", name_of(array.dtype),
                        name_of(values.dtype)));
    require_memory(values.data, values.count, values.dtype, 1, operation, name);
    require(!__builtin_add_overflow(total, values.count.value, &total), operation, name,
            "pieces whose counts' sum fits into 64 bits");
  }
  require(total == array.count.value, operation, name,
          fmt::format("pieces of {} elements together, as the array has, found {}",
                      array.count.value, total));
}

/// A rank's choice when ranks split. Plain bytes, so that it travels as it is.
struct Choice {
  std::int64_t colour = kNoGroup;
  std::int64_t key = 0;
  std::uint64_t next_number = 0;  // the smallest group number that it has not seen
  std::uint64_t name_hash = 0;
  std::uint64_t name_length = 0;
  std::array<char, 80> name{};  // its beginning, for the message

  void set_name(std::string_view full) {
    name_hash = hash_bytes(full);
    name_length = std::min(full.size(), name.size());
    std::memcpy(name.data(), full.data(), name_length);
  }
  std::string_view shown_name() const { return {name.data(), name_length}; }
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
          choices[a].colour, ranks[a], choices[a].shown_name(), ranks[b], choices[b].shown_name());
    }
  }
  return std::nullopt;
}

}  // namespace

QueuedCommunicator::QueuedCommunicator(std::unique_ptr<Transport> transport,
                                       const CommunicatorOptions& options)
    : reads_pieces_(transport->can_read_peers()),
      queue_(std::make_shared<ProgressQueue>(std::move(transport))),
      group_(queue_->whole(options.checked)) {}

QueuedCommunicator::~QueuedCommunicator() {
  queue_->drain(*group_, std::uncaught_exceptions() > unwinding_);
}

WorkPtr QueuedCommunicator::submit(Request request, CollectiveCall call) {
  request.group = group_;
  return queue_->submit(std::move(request), call);
}

WorkPtr QueuedCommunicator::all_reduce(Buffer buffer, Reduce op, std::string name) {
  require_memory(buffer.data, buffer.count, buffer.dtype, 1, "all-reduce", name);
  Request request{.output = buffer, .name = std::move(name)};
  request.fingerprint.count = buffer.count.value;
  request.fingerprint.reduce = op;
  return submit(std::move(request), CollectiveCall::all_reduce);
}

WorkPtr QueuedCommunicator::reduce_scatter(ConstBuffer input, Buffer output, Reduce op,
                                           std::string name) {
  require(input.dtype == output.dtype, "reduce-scatter", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, 1, "reduce-scatter", name);
  require_memory(output.data, output.count, output.dtype, size(), "reduce-scatter", name);
  require(input.count.value == size() * output.count.value, "reduce-scatter", name,
          fmt::format("an input of {} ranks x {} elements, found {}", size(), output.count.value,
                      input.count.value));
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.fingerprint.count = input.count.value;
  request.fingerprint.reduce = op;
  return submit(std::move(request), CollectiveCall::reduce_scatter);
}

WorkPtr QueuedCommunicator::all_reduce(std::vector<Piece> pieces, Buffer array, std::string name) {
  require_memory(array.data, array.count, array.dtype, 1, "all-reduce", name);
  require_pieces(pieces, array, "all-reduce", name);
  Request request{.output = array, .pieces = std::move(pieces), .name = std::move(name)};
  request.fingerprint.count = array.count.value;
  return submit(std::move(request), CollectiveCall::all_reduce);
}

WorkPtr QueuedCommunicator::reduce_scatter(std::vector<Piece> pieces, Buffer array,
                                           std::string name) {
  require_memory(array.data, array.count, array.dtype, 1, "reduce-scatter", name);
  require(array.count.value % size() == 0, "reduce-scatter", name,
          fmt::format("an array of {} equal blocks, found {} elements", size(), array.count.value));
  require_pieces(pieces, array, "reduce-scatter", name);
  Request request{.output = array, .pieces = std::move(pieces), .name = std::move(name)};
  request.fingerprint.count = array.count.value;
  return submit(std::move(request), CollectiveCall::reduce_scatter);
}

WorkPtr QueuedCommunicator::all_gather(ConstBuffer input, Buffer output, std::string name) {
  require(input.dtype == output.dtype, "all-gather", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, size(), "all-gather", name);
  require_memory(output.data, output.count, output.dtype, 1, "all-gather", name);
  require(output.count.value == size() * input.count.value, "all-gather", name,
          fmt::format("an output of {} ranks x {} elements, found {}", size(), input.count.value,
                      output.count.value));
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.counts.assign(to_index(size()), input.count.value);
  request.fingerprint.count = input.count.value;
  return submit(std::move(request), CollectiveCall::all_gather);
}

WorkPtr QueuedCommunicator::all_gather_v(ConstBuffer input, Buffer output,
                                         std::span<const std::int64_t> counts, std::string name) {
  require(input.dtype == output.dtype, "all-gather-v", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, 1, "all-gather-v", name);
  require_memory(output.data, output.count, output.dtype, 1, "all-gather-v", name);
  require(static_cast<int>(counts.size()) == size(), "all-gather-v", name,
          fmt::format("{} counts, one a rank, found {}", size(), counts.size()));
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.counts.assign(counts.begin(), counts.end());
  request.fingerprint.counts_hash = kHashStart;
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    require(count >= 0 && !__builtin_add_overflow(total, count, &total), "all-gather-v",
            request.name,
            fmt::format("counts from 0 on whose sum fits into 64 bits, found {}", count));
    request.fingerprint.counts_hash =
        hash_value(static_cast<std::uint64_t>(count), request.fingerprint.counts_hash);
  }
  require(input.count.value == counts[to_index(rank())], "all-gather-v", request.name,
          fmt::format("an input of counts[{}] = {} elements, found {}", rank(),
                      counts[to_index(rank())], input.count.value));
  require(output.count.value == total, "all-gather-v", request.name,
          fmt::format("an output of {} elements, the sum of the counts, found {}", total,
                      output.count.value));
  request.fingerprint.count = input.count.value;
  return submit(std::move(request), CollectiveCall::all_gather_v);
}

WorkPtr QueuedCommunicator::all_to_all(ConstBuffer input, Buffer output, std::string name) {
  require(input.dtype == output.dtype, "all-to-all", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, 1, "all-to-all", name);
  require_memory(output.data, output.count, output.dtype, 1, "all-to-all", name);
  require(input.count.value == output.count.value && input.count.value % size() == 0, "all-to-all",
          name, fmt::format("input and output of the same count, a multiple of {}", size()));
  require(input.data != output.data || input.count.value == 0, "all-to-all", name,
          "separate memory for input and output");
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.fingerprint.count = input.count.value;
  return submit(std::move(request), CollectiveCall::all_to_all);
}

WorkPtr QueuedCommunicator::broadcast(Buffer buffer, int root, std::string name) {
  require(root >= 0 && root < size(), "broadcast", name,
          fmt::format("a root in 0..{}, found {}", size() - 1, root));
  require_memory(buffer.data, buffer.count, buffer.dtype, 1, "broadcast", name);
  Request request{.output = buffer, .name = std::move(name)};
  request.fingerprint.count = buffer.count.value;
  request.fingerprint.root = group_->members[to_index(root)];
  request.root = root;
  return submit(std::move(request), CollectiveCall::broadcast);
}

WorkPtr QueuedCommunicator::barrier(std::string name) {
  return submit(Request{.name = std::move(name)}, CollectiveCall::barrier);
}

/// All ranks gather their choices, so each computes all groups alike without further messages.
///
/// An example with colours 0, 1, 0 on ranks 0 to 2. Ranks 0 and 2 form a group, and rank 1 one of
/// its own. Rank 2 is already in another group with number 1, so it has 2 as its next number, and
/// ranks 0 and 1 have 1. The group of ranks 0 and 2 gets number 2, the greatest of its members'
/// next numbers. So no two communicators of rank 2 have the same number.
std::unique_ptr<Communicator> QueuedCommunicator::split(int colour, int key, std::string name) {
  if (name.empty()) throw UsageError("split: expected a name for the group, found none");
  Choice own{
      .colour = std::max(colour, kNoGroup), .key = key, .next_number = queue_->next_number()};
  own.set_name(name);
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
  return std::unique_ptr<Communicator>(new QueuedCommunicator(queue_, std::move(group)));
}

std::string Communicator::unique_name(const std::string& wanted) {
  const std::lock_guard lock(names_mutex_);
  const int uses = ++names_[wanted];
  return uses == 1 ? wanted : fmt::format("{} ({})", wanted, uses);
}

// For communicators that read no pieces.

WorkPtr Communicator::all_reduce(std::vector<Piece> pieces, Buffer array, std::string name) {
  write_pieces(array, pieces);
  return all_reduce(array, Reduce::sum, std::move(name));
}

WorkPtr Communicator::reduce_scatter(std::vector<Piece> pieces, Buffer array, std::string name) {
  write_pieces(array, pieces);
  const std::int64_t block = array.count.value / size();
  const Buffer own{static_cast<std::byte*>(array.data) + rank() * block * size_of(array.dtype),
                   {block},
                   array.dtype};
  return reduce_scatter(array, own, Reduce::sum, std::move(name));
}

// submit() fills in the fingerprint and queues the request. loop() takes one request after the
// other. execute() tells the transport which collective begins, compares fingerprints in checked
// mode, and runs the schedule for the size. An error becomes the text that every wait() of this
// Work throws.
//
// Example: the main thread submits all-reduces A, B and C at 0, 1 and 2 ms, and each takes 5 ms.
// The progress thread runs A from 0 to 5 ms, B to 10 and C to 15. wait() of C at 3 ms returns at 15
// ms. Every rank must submit in this order, because a rank that begins with B would send B's bytes
// to ranks that wait for A's.

class ProgressQueue::QueuedWork final : public Work {
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

std::shared_ptr<QueuedGroup> ProgressQueue::group_of(std::vector<int> members, int rank) {
  auto group = std::make_shared<QueuedGroup>();
  group->members = std::move(members);
  group->rank = rank;
  group->channel.emplace(*transport_, group->members, rank);
  return group;
}

std::shared_ptr<QueuedGroup> ProgressQueue::whole(bool checked) {
  std::vector<int> members(to_index(transport_->size()));
  std::iota(members.begin(), members.end(), 0);
  auto group = group_of(std::move(members), transport_->rank());
  group->checked = checked;
  return group;
}

std::shared_ptr<QueuedGroup> ProgressQueue::part(std::uint64_t number, std::string name,
                                                 std::vector<int> members, int rank,
                                                 std::shared_ptr<QueuedGroup> parent) {
  auto group = group_of(std::move(members), rank);
  group->number = number;
  group->name = std::move(name);
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
  if (!group.parent) return transport_->traffic();
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
    run_schedule(channel, request);
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
