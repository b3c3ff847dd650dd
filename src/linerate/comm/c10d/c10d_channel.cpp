// A message is posted to the process group and noted in `posted_`. wait_here() sleeps in its
// wait(), on this or a waiter's thread, and marks it finished. collect() runs on the progress
// thread alone: it marks transfers as done and turns problems into the run's failure.
//
// If the run fails, the thread of the beats aborts all messages, so every wait() returns.
//
// c10d's own collectives are not used on host memory. linerate's schedules send single messages by
// send() and recv(). So measured and predicted collectives are the same code as over MPI.
#include "linerate/comm/c10d/c10d_channel.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <utility>

#include "linerate/comm/c10d/c10d_world.hpp"
#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/comm/transport.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

constexpr int kTagBits = 31;  // of an int

/// The memory of a message is plain bytes, wrapped as a tensor that does not own them. Its owner
/// keeps it (Payloads::hold, or the caller of a collective). Memory of a device would need a slice
/// of its own tensor here, because streams and the caching allocator track tensors.
std::vector<at::Tensor> bytes_of(const PeerMessage& message) {
  return {at::from_blob(message.data, {static_cast<std::int64_t>(message.bytes)}, at::kByte)};
}

void abort_work(::c10d::Work& work) {
  try {
    work.abort();
  } catch (const std::exception&) {  // a back end that cannot: it ends with its peer
  }
}

/// The name of the back end that moves CPU memory. Throws UsageError if the group has none, or no
/// store.
std::string backend_of(::c10d::ProcessGroup& group) {
  std::string name;
  try {
    name = group.getBackend(c10::DeviceType::CPU)->getBackendName();
  } catch (const std::exception&) {
    throw UsageError(
        fmt::format("process group \"{}\" has no back end for CPU memory; make one next to it: "
                    "torch.distributed.new_group(backend=\"gloo\")",
                    group.getGroupName()));
  }
  if (!group.getStore())
    throw UsageError(fmt::format(
        "process group \"{}\" has no store, which ranks need to tell each other that they are "
        "alive; make it with torch.distributed.init_process_group() or new_group()",
        group.getGroupName()));
  return name;
}

/// A store of a world's own, over a connection of its own. Worlds of one group are numbered,
/// because every rank of the group makes them together. Worlds of other groups are made by other
/// ranks.
C10dStore store_of_next_world(::c10d::ProcessGroup& group) {
  static std::mutex mutex;
  static std::map<std::string, int> worlds;
  const std::lock_guard lock(mutex);
  const std::string name = group.getGroupName();
  return c10::make_intrusive<::c10d::PrefixStore>(
      fmt::format("linerate/{}/{}/", name, ++worlds[name]), group.getStore()->clone());
}

/// Messages of c10d can be waited for, but not asked whether they are complete; gloo's learn of
/// that only inside wait(). So threads have to wait.
///
/// There are two cases. If the schedule cannot go on without one certain transfer, the progress
/// thread waits for that transfer itself. If any transfer may come first, or sends wait for the
/// link, two threads wait. One waits for the sends and one for the receives, each in their order.
/// In a ring, for example, a rank has four receives and four sends in flight, and whichever is done
/// first wakes the progress thread.
class C10dChannel final : public Transport {
 public:
  /// `start`: how long the ranks may take to come together. Throws UsageError if the group has no
  /// CPU back end or no store.
  C10dChannel(c10::intrusive_ptr<::c10d::ProcessGroup> group, Clock::duration timeout,
              Clock::duration start)
      : Transport(
            std::make_shared<Liveness>(group->getRank(), group->getSize(), timeout, Clock::now()),
            kTagBits, pacer_of_process()),
        group_(std::move(group)),
        backend_(backend_of(*group_)),
        beats_(store_of_next_world(*group_), life_, start, [this] { abort_messages(); }) {
    sends_ = std::thread([this] { wait_in_order(true); });
    receives_ = std::thread([this] { wait_in_order(false); });
  }
  ~C10dChannel() override {
    abandon();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    posted_more_.notify_all();
    sends_.join();
    receives_.join();
  }

  std::string name() const override { return backend_; }
  /// A message wakes three threads, so smaller chunks cost more than the caches into which they fit
  /// save. On a paced link smaller chunks pay, because gloo works on one while the next one leaves.
  std::size_t chunk_bytes() const override {
    return is_paced() ? std::size_t{512} << 10 : std::size_t{4} << 20;
  }
  std::size_t latency_bytes() const override { return std::size_t{32} << 10; }

  void poll() override { collect(); }
  void wait_some() override;
  void wait_for(const Transfer& transfer) override;
  bool can_read_peers() const override { return false; }
  bool read(int, std::uint64_t, void*, std::size_t) override { return false; }

  void abort(const std::string& reason) override { beats_.end_run(reason); }
  void begin(const Purpose& purpose) override {
    Transport::begin(purpose);
    if (const auto reason = beats_.failure()) fail(*reason);
  }
  void leave() override { beats_.leave(); }

 private:
  struct Posted {
    c10::intrusive_ptr<::c10d::Work> work;
    PeerMessage message;
    bool handed = false;
    // Under the mutex:
    bool finished = false, aborted = false;
    std::optional<std::string> problem{};
  };

  void start(const PeerMessage& message) override;
  std::string end_messages(const std::string& reason, bool at_once) override {
    beats_.end_run(reason);
    const std::string counts = at_once ? reason : beats_.ended_by(reason);
    abandon();
    return counts;
  }
  bool collect();
  /// A peer may be at fault, and say so itself in a moment.
  [[noreturn]] void blame(const std::string& problem) {
    const Clock::duration patience =
        std::max<Clock::duration>(3 * life_->period(), std::chrono::milliseconds(100));
    fail(beats_.ended_by(problem, patience));
  }
  void hand_over() {
    {
      const std::lock_guard lock(mutex_);
      for (Posted& posted : posted_) posted.handed = true;
    }
    posted_more_.notify_all();
  }
  /// Called under the mutex; null if there is none.
  Posted* next_to_wait_for(bool sends) {
    for (Posted& posted : posted_)
      if (posted.handed && !posted.finished && posted.message.sends == sends) return &posted;
    return nullptr;
  }
  void wait_in_order(bool sends);
  void wait_here(Posted& posted);
  void settle(Posted& posted) {
    if (posted.problem)
      blame(fmt::format("the connection to rank {} failed: {}", posted.message.peer,
                        *posted.problem));
    if (posted.aborted) blame("a message was cancelled");
    posted.message.transfer->done = true;
  }
  /// Called from the thread of the beats when the run has failed.
  void abort_messages() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    for (Posted& posted : posted_)
      if (!posted.finished) abort_work(*posted.work);
  }
  void abandon();

  const c10::intrusive_ptr<::c10d::ProcessGroup> group_;
  const std::string backend_;
  std::mutex mutex_;  // of the messages
  std::condition_variable posted_more_, finished_more_;
  std::list<Posted> posted_;
  std::thread sends_, receives_;  // which wait for those that are handed to them
  bool stopping_ = false, ended_ = false;
  StoreBeats beats_;  // last: its thread calls abort_messages()
};

void C10dChannel::start(const PeerMessage& message) {
  const int peer = message.peer, tag = static_cast<int>(message.tag);
  c10::intrusive_ptr<::c10d::Work> work;
  try {
    const at::DisableRecordFunctionGuard unseen;  // by profilers, and by weight gates
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> memory = bytes_of(message);
    work = message.sends ? group_->send(memory, peer, tag) : group_->recv(memory, peer, tag);
  } catch (const std::exception& e) {
    blame(fmt::format("no message {} rank {}: {}",
                      message.sends ? "could be sent to" : "can be received from", peer,
                      first_line(e.what())));
  }
  const std::lock_guard lock(mutex_);
  posted_.push_back({.work = std::move(work), .message = message});
  if (ended_) abort_work(*posted_.back().work);
}

/// Takes note of finished messages; true if there are any.
bool C10dChannel::collect() {
  start_due_sends();
  std::list<Posted> finished;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = posted_.begin(); at != posted_.end();) {
      const auto next = std::next(at);
      if (at->finished) finished.splice(finished.end(), posted_, at);
      at = next;
    }
  }
  for (Posted& posted : finished) settle(posted);
  return !finished.empty();
}

/// Sleeps until a message is finished. No lock is held, and meanwhile only abort() touches the
/// message.
void C10dChannel::wait_here(Posted& posted) {
  bool complete = false;
  std::optional<std::string> problem;
  try {
    complete = posted.work->wait();
  } catch (const std::exception& e) {
    problem = first_line(e.what());
  }
  const std::lock_guard lock(mutex_);
  posted.aborted = !complete;
  if (!complete && !ended_) posted.problem = problem;
  posted.finished = true;
}

void C10dChannel::wait_in_order(bool sends) {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_more_.wait(lock, [&] { return stopping_ || next_to_wait_for(sends); });
    Posted* const next = next_to_wait_for(sends);
    if (next == nullptr) return;
    lock.unlock();
    wait_here(*next);
    lock.lock();
    finished_more_.notify_all();
  }
}

void C10dChannel::wait_some() {
  hand_over();
  const bool departs = next_departure().has_value();
  {
    std::unique_lock lock(mutex_);
    const auto over = [&] {
      return (posted_.empty() && !departs) ||
             std::any_of(posted_.begin(), posted_.end(),
                         [](const Posted& p) { return p.finished; });
    };
    if (departs)
      finished_more_.wait_until(lock, or_next_departure(Clock::now() + life_->period()), over);
    else
      finished_more_.wait(lock, over);
  }
  if (collect()) return moved();
  // There may be no message in flight that a peer's failure would end.
  if (const auto reason = beats_.failure()) fail(*reason);
}

/// Sleeps until this transfer is done, without which the schedule cannot go on.
void C10dChannel::wait_for(const Transfer& transfer) {
  while (!transfer.done) {
    if (next_departure()) {
      wait_some();
      continue;
    }
    Posted* own = nullptr;
    {
      const std::lock_guard lock(mutex_);
      for (Posted& posted : posted_)
        if (posted.message.transfer == &transfer) own = &posted;
    }
    LINERATE_CHECK(own != nullptr, "the program waits for a transfer that was not posted");
    if (own->handed) {
      wait_some();
      continue;
    }
    wait_here(*own);
    collect();
    moved();
  }
}

/// When this returns, the group uses none of the memory that was posted.
void C10dChannel::abandon() {
  drop_waiting_sends();
  std::list<Posted> dropped;
  {
    std::unique_lock lock(mutex_);
    ended_ = ended_ || !posted_.empty();
    for (Posted& posted : posted_)
      if (!posted.finished) abort_work(*posted.work);
    finished_more_.wait(lock,
                        [this] { return !next_to_wait_for(true) && !next_to_wait_for(false); });
    dropped.swap(posted_);
  }
}

}  // namespace

std::unique_ptr<Communicator> make_world_of_group(const std::string& group_name,
                                                  const CommunicatorOptions& options) {
  const Clock::duration timeout = clock_time(options.timeout, "process group: timeout");
  const Clock::duration start = start_time(options.start_timeout, timeout, "process group");
  return queued(
      std::make_unique<C10dChannel>(::c10d::resolve_process_group(group_name), timeout, start),
      options.checked);
}

// Each rank of a world has a thread that writes the rank's beat to the process group's store once a
// period. If a rank's own collective is stuck, its thread reads the others' beats, and Liveness
// judges them. The first rank that finds a reason writes it under the key "end". The store keeps
// the first one, so all ranks end with the same message.
//
// Example of three ranks with a period of 1 s: rank 2 is killed at 10 s, while all three are in an
// all-reduce. At 11 s ranks 0 and 1 see that they are stuck, and look at the beats. Rank 2's beat
// does not change any more. When it has been silent for as long as Liveness allows, rank 0 writes
// the reason. Rank 1 finds that at its next look.

namespace {

using std::chrono::milliseconds;

const char* const kEnd = "end";

std::string key_of(int rank) { return fmt::format("rank {}", rank); }

/// Plain bytes, as Beat.
struct Report {
  std::uint64_t number = 0;  // of this beat
  Beat beat{};
};

}  // namespace

StoreBeats::StoreBeats(C10dStore store, std::shared_ptr<Liveness> life, Clock::duration start,
                       std::function<void()> failed)
    : life_(std::move(life)),
      store_(std::move(store)),
      failed_(std::move(failed)),
      last_beat_(to_index(life_->size())) {
  publish();
  wait_for_all(start);
  thread_ = std::thread([this] { loop(); });
}

void StoreBeats::wait_for_all(Clock::duration limit) {
  const Clock::time_point start = Clock::now();
  std::vector<int> missing(to_index(life_->size()));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::erase_if(missing, [this](int r) { return store_->check({key_of(r)}); });
    if (missing.empty()) return;
    if (Clock::now() - start > limit)
      throw CommError(
          fmt::format("rank {}: rank{} {} did not come within {}; every rank of the process group "
                      "has to make the communicator",
                      life_->rank(), missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
                      format_time(std::chrono::duration<double>(limit).count())));
    std::this_thread::sleep_for(milliseconds(2));
  }
}

StoreBeats::~StoreBeats() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void StoreBeats::end_run(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!wanted_end_) wanted_end_ = reason;
  }
  wake_.notify_all();
}

std::optional<std::string> StoreBeats::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? failure_ : wanted_end_;
}

std::string StoreBeats::ended_by(const std::string& reason, Clock::duration patience) {
  std::unique_lock lock(mutex_);
  const auto said = [this] { return failure_.has_value(); };
  said_.wait_for(lock, patience, said);
  if (!wanted_end_) wanted_end_ = reason;
  wake_.notify_all();
  // The store decides which reason was the first.
  said_.wait_for(lock, 3 * life_->period() + milliseconds(500), said);
  return failure_.value_or(reason);
}

void StoreBeats::leave() {
  life_->set_state(Beat::State::left);
  std::unique_lock lock(mutex_);
  leaving_ = true;
  wake_.notify_all();
  said_.wait_for(lock, 2 * life_->period() + milliseconds(500), [this] { return said_leave_; });
}

void StoreBeats::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    serve();
    lock.lock();
    wake_.wait_for(lock, life_->period(), [this] {
      return stopping_ || (leaving_ && !said_leave_) || (wanted_end_ && !failure_);
    });
  }
  const bool unsaid = wanted_end_ && !failure_;
  lock.unlock();
  if (unsaid) serve();
}

/// One period's work of the thread: writes the beat, and looks at the end of the run or at the
/// peers. If the store does not answer, the run has failed, unless this rank is leaving.
void StoreBeats::serve() {
  std::optional<std::string> wanted;
  bool over = false, leaving = false;
  {
    const std::lock_guard lock(mutex_);
    wanted = wanted_end_;
    over = failure_.has_value();
    leaving = leaving_;
  }
  std::optional<std::string> problem;
  try {
    life_->awake(Clock::now());
    publish();
    if (over) {
    } else if (wanted) {
      set_failure(store_->compareSet(kEnd, "", *wanted));
    } else if (store_->check({kEnd})) {
      set_failure(store_->get_to_str(kEnd));
    } else {
      look_at_peers();
    }
  } catch (const std::exception& e) {
    problem = fmt::format("rank {}: the process group's store does not answer: {}", life_->rank(),
                          first_line(e.what()));
  }
  if (problem && !leaving) set_failure(*problem);
  if (!leaving) return;
  {
    const std::lock_guard lock(mutex_);
    said_leave_ = true;
  }
  said_.notify_all();
}

/// Writes a Report and a line for each rank.
void StoreBeats::publish() {
  std::vector<SharedWork> shared(to_index(life_->size()));
  const Report report{++beat_, life_->say(Clock::now(), 0, shared)};
  std::string text(reinterpret_cast<const char*>(&report), sizeof(report));
  text.append(reinterpret_cast<const char*>(shared.data()), shared.size() * sizeof(SharedWork));
  store_->set(key_of(life_->rank()), text);
}

/// Reads the beats of all ranks of the job, if this rank is stuck. Ranks outside of the group count
/// as well, because a busy one may hold up a member.
void StoreBeats::look_at_peers() {
  const Clock::time_point start = Clock::now();
  const auto stuck = life_->stuck(start);
  if (!stuck || *stuck < life_->period()) {
    looked_ = false;
    return;
  }
  for (int r = 0; r < life_->size(); ++r) {
    if (r == life_->rank()) continue;
    const std::string text = store_->get_to_str(key_of(r));
    const auto own_line = sizeof(Report) + to_index(life_->rank()) * sizeof(SharedWork);
    if (text.size() < own_line + sizeof(SharedWork)) continue;
    Report report;
    SharedWork shared;
    std::memcpy(&report, text.data(), sizeof(report));
    std::memcpy(&shared, text.data() + own_line, sizeof(shared));
    // A beat that is new since the last look counts as heard now. At the first look a beat may be
    // of any time, so it counts as heard when this rank got stuck.
    if (std::exchange(last_beat_[to_index(r)], report.number) != report.number)
      life_->heard(r, report.beat, shared, looked_ ? Clock::now() : start - *stuck);
  }
  looked_ = true;
  if (const auto reason = life_->judge(Clock::now()))
    set_failure(store_->compareSet(kEnd, "", *reason));
}

void StoreBeats::set_failure(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = reason;
  }
  said_.notify_all();
  failed_();
}

}  // namespace linerate::comm
