// A message is posted to the process group and noted in `posted_`. wait_here() sleeps in its
// wait(), on this or a waiter's thread, and marks it finished. collect() runs on the progress
// thread alone: it marks transfers as done and turns problems into the run's failure.
//
// If the run fails, the thread of the beats aborts all messages, so every wait() returns.
#include "linerate/comm/c10d/c10d_channel.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "linerate/comm/c10d/c10d_world.hpp"
#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/comm/channel.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

constexpr int kTagBits = 31;  // of an int

}  // namespace

C10dChannel::C10dChannel(std::unique_ptr<C10dGroup> group, Clock::duration timeout,
                         Clock::duration start)
    : Transport(std::make_shared<Liveness>(group->rank(), group->size(), timeout, Clock::now()),
                kTagBits, pacer_of_process()),
      group_(std::move(group)),
      beats_(*group_, life_, start, [this] { abort_messages(); }) {
  for (Waiter* waiter : {&sends_, &receives_})
    waiter->thread = std::thread([this, waiter] { wait_in_order(*waiter); });
}

C10dChannel::~C10dChannel() {
  abandon();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_more_.notify_all();
  for (Waiter* waiter : {&sends_, &receives_}) waiter->thread.join();
}

void C10dChannel::begin(const Purpose& purpose) {
  Transport::begin(purpose);
  if (const auto reason = beats_.failure()) fail(*reason);
}

void C10dChannel::start_send(int peer, const void* data, std::size_t bytes, std::uint64_t tag,
                             Transfer& transfer) {
  try {
    post(group_->send(peer, data, bytes, static_cast<int>(tag)), peer, transfer, true);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(beats_.ended_by_or(
        fmt::format("no message could be sent to rank {}: {}", peer, first_line(e.what()))));
  }
}

void C10dChannel::receive(int peer, void* data, std::size_t bytes, Transfer& transfer) {
  transfer.done = false;
  count_received(bytes);
  try {
    post(group_->receive(peer, data, bytes, static_cast<int>(tag(peer))), peer, transfer, false);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(beats_.ended_by_or(
        fmt::format("no message can be received from rank {}: {}", peer, first_line(e.what()))));
  }
}

void C10dChannel::post(std::unique_ptr<C10dMessage> message, int peer, Transfer& transfer,
                       bool sends) {
  const std::lock_guard lock(mutex_);
  Posted& posted = posted_.emplace_back();
  posted.message = std::move(message);
  posted.transfer = &transfer;
  posted.peer = peer;
  posted.sends = sends;
  if (ended_) posted.message->abort();
}

/// Takes note of finished messages; true if there are any.
bool C10dChannel::collect() {
  start_due_sends();
  bool any = false;
  std::list<Posted> finished;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = posted_.begin(); at != posted_.end();) {
      const auto next = std::next(at);
      if (at->finished) finished.splice(finished.end(), posted_, at);
      at = next;
    }
  }
  for (Posted& posted : finished) {
    settle(posted);
    any = true;
  }
  return any;
}

void C10dChannel::settle(Posted& posted) {
  if (posted.problem)
    fail(beats_.ended_by_or(
        fmt::format("the connection to rank {} failed: {}", posted.peer, *posted.problem)));
  if (posted.aborted) fail(beats_.ended_by_or("a message was cancelled"));
  posted.transfer->done = true;
}

/// Sleeps until a message is finished. No lock is held, and meanwhile only abort() touches the
/// message.
void C10dChannel::wait_here(Posted& posted) {
  bool complete = false;
  std::optional<std::string> problem;
  try {
    complete = posted.message->wait();
  } catch (const std::exception& e) {
    problem = first_line(e.what());
  }
  const std::lock_guard lock(mutex_);
  posted.aborted = !complete;
  if (!complete && !ended_) posted.problem = problem;
  posted.finished = true;
}

void C10dChannel::wait_in_order(Waiter& waiter) {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_more_.wait(lock, [&] { return stopping_ || !waiter.queue.empty(); });
    if (waiter.queue.empty()) return;
    Posted& next = *waiter.queue.front();
    lock.unlock();
    wait_here(next);
    lock.lock();
    waiter.queue.pop_front();
    finished_more_.notify_all();
  }
}

void C10dChannel::hand_over() {
  {
    const std::lock_guard lock(mutex_);
    for (Posted& posted : posted_) {
      if (std::exchange(posted.handed, true)) continue;
      (posted.sends ? sends_ : receives_).queue.push_back(&posted);
    }
  }
  posted_more_.notify_all();
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
        if (posted.transfer == &transfer) own = &posted;
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

/// Called from the thread of the beats when the run has failed.
void C10dChannel::abort_messages() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (Posted& posted : posted_)
    if (!posted.finished) posted.message->abort();
}

/// When this returns, the group uses none of the memory that was posted.
void C10dChannel::abandon() {
  drop_waiting_sends();
  std::list<Posted> dropped;
  {
    std::unique_lock lock(mutex_);
    ended_ = ended_ || !posted_.empty();
    for (Posted& posted : posted_)
      if (!posted.finished) posted.message->abort();
    finished_more_.wait(lock, [this] { return sends_.queue.empty() && receives_.queue.empty(); });
    dropped.swap(posted_);
  }
}

void C10dChannel::fail(const std::string& reason) {
  const std::string counted = beats_.ended_by(reason);
  abandon();
  throw_failure(counted);
}

void C10dChannel::give_up(const std::string& reason) {
  beats_.end_run(reason);
  abandon();
}

// The one file that calls c10d for messages and the store. It wraps plain memory as a tensor that
// does not own it, and c10d's Work and Store as C10dMessage and SharedStore.
//
// c10d's own collectives are not used on host memory. linerate's schedules send single messages by
// send() and receive(). So measured and predicted collectives are the same code as over MPI.

namespace {

std::vector<at::Tensor> bytes_of(const void* data, std::size_t bytes) {
  return {at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)}, at::kByte)};
}

class GroupMessage final : public C10dMessage {
 public:
  explicit GroupMessage(c10::intrusive_ptr<::c10d::Work> work) : work_(std::move(work)) {}
  bool wait() override { return work_->wait(); }
  void abort() override {
    try {
      work_->abort();
    } catch (const std::exception&) {  // a back end that cannot: it ends with its peer
    }
  }

 private:
  c10::intrusive_ptr<::c10d::Work> work_;
};

std::vector<std::uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

class GroupStore final : public SharedStore {
 public:
  explicit GroupStore(c10::intrusive_ptr<::c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override {
    store_->set(key, to_bytes(value));
  }
  std::string get(const std::string& key) override {
    const std::vector<std::uint8_t> value = store_->get(key);
    return {value.begin(), value.end()};
  }
  bool has(const std::string& key) override { return store_->check({key}); }
  std::string set_first(const std::string& key, const std::string& value) override {
    const std::vector<std::uint8_t> now = store_->compareSet(key, {}, to_bytes(value));
    return {now.begin(), now.end()};
  }

 private:
  c10::intrusive_ptr<::c10d::Store> store_;
};

class ProcessGroupMessages final : public C10dGroup {
 public:
  explicit ProcessGroupMessages(c10::intrusive_ptr<::c10d::ProcessGroup> group)
      : group_(std::move(group)) {
    try {
      backend_ = group_->getBackend(c10::DeviceType::CPU)->getBackendName();
    } catch (const std::exception&) {
      throw UsageError(
          fmt::format("process group \"{}\" has no back end for CPU memory; make one next to it: "
                      "torch.distributed.new_group(backend=\"gloo\")",
                      name()));
    }
    if (!group_->getStore())
      throw UsageError(fmt::format(
          "process group \"{}\" has no store, which ranks need to tell each other that they are "
          "alive; make it with torch.distributed.init_process_group() or new_group()",
          name()));
  }

  std::string name() const override { return group_->getGroupName(); }
  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }
  std::string backend() const override { return backend_; }
  std::unique_ptr<C10dMessage> send(int peer, const void* data, std::size_t bytes,
                                    int tag) override {
    const at::DisableRecordFunctionGuard unseen;  // by profilers, and by weight gates
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> memory = bytes_of(data, bytes);
    return std::make_unique<GroupMessage>(group_->send(memory, peer, tag));
  }
  std::unique_ptr<C10dMessage> receive(int peer, void* data, std::size_t bytes, int tag) override {
    const at::DisableRecordFunctionGuard unseen;
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> memory = bytes_of(data, bytes);
    return std::make_unique<GroupMessage>(group_->recv(memory, peer, tag));
  }
  std::unique_ptr<SharedStore> store(const std::string& prefix) override {
    return std::make_unique<GroupStore>(
        c10::make_intrusive<::c10d::PrefixStore>(prefix, group_->getStore()->clone()));
  }

 private:
  c10::intrusive_ptr<::c10d::ProcessGroup> group_;
  std::string backend_;
};

}  // namespace

std::unique_ptr<Communicator> make_world_of_group(const std::string& group_name,
                                                  const CommunicatorOptions& options) {
  const Clock::duration timeout = clock_time(options.timeout, "process group: timeout");
  const Clock::duration start = start_time(options.start_timeout, timeout, "process group");
  auto group = std::make_unique<ProcessGroupMessages>(::c10d::resolve_process_group(group_name));
  return std::make_unique<QueuedCommunicator>(
      std::make_unique<C10dChannel>(std::move(group), timeout, start), options);
}

}  // namespace linerate::comm
