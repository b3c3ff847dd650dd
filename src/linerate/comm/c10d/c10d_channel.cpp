// A message is posted to the process group and noted in `posted_`. wait_here() sleeps in its
// wait(), on this or a waiter's thread, and marks it finished. collect() runs on the progress
// thread alone: it marks transfers as done and turns problems into the run's failure.
//
// If the run fails, the thread of the beats aborts all messages, so every wait() returns.
#include "linerate/comm/c10d/c10d_channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

}  // namespace linerate::comm
