#include "linerate/comm/transport.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"

namespace linerate::comm {

void Transport::begin(const Purpose& purpose) {
  purpose_ = purpose;
  comparing_ = purpose.compares;
  life_->begin(purpose, Clock::now());
}

void Transport::compared(bool alike) {
  comparing_ = false;
  life_->compared(alike);
}

/// Sends a message. With a paced link it is handed over when its last byte would have left. Over a
/// real link the receiver does not have all of it before.
void Transport::send(int peer, const void* data, std::size_t bytes, Transfer& transfer) {
  transfer.done = false;
  count(sent_bytes_, bytes);
  const PeerMessage message{true, peer, const_cast<void*>(data), bytes, tag(peer), &transfer};
  if (!pacer_) return start(message);
  waiting_.push_back({pacer_->departure(bytes, Clock::now()), message});
  start_due_sends();
}

void Transport::receive(int peer, void* data, std::size_t bytes, Transfer& transfer) {
  transfer.done = false;
  count(received_bytes_, bytes);
  start({false, peer, data, bytes, tag(peer), &transfer});
}

void Transport::start_due_sends() {
  while (!waiting_.empty() && waiting_.front().departure <= Clock::now()) {
    const PeerMessage message = waiting_.front().message;
    waiting_.pop_front();
    start(message);
  }
}

std::optional<Clock::time_point> Transport::next_departure() const {
  return waiting_.empty() ? std::nullopt : std::optional(waiting_.front().departure);
}

Clock::time_point Transport::or_next_departure(Clock::time_point wake) const {
  return std::min(wake, next_departure().value_or(wake));
}

std::uint64_t Transport::tag(int peer) const {
  const std::uint64_t mask = (std::uint64_t{1} << tag_bits_) - 1;
  if (comparing_) return (life_->begun(peer) << 1 & mask) | 1;
  const std::uint64_t history = life_->history(peer);
  return ((history ^ (history >> 29)) << 4 & mask) |
         static_cast<std::uint64_t>(purpose_.print->call) << 1;
}

void Transport::fail(const std::string& reason) {
  const std::string counts = end_messages(reason, false);
  throw CommError(fmt::format("rank {}: {}: {}", rank(), purpose_.print->describe(), counts));
}

Clock::duration clock_time(Duration time, const std::string& what) {
  constexpr double kLeast = 1e-3, kMost = 1e9;
  const double seconds = time.count();
  if (!(seconds >= kLeast && seconds <= kMost))  // false for NaN too
    throw UsageError(fmt::format("{}: expected a time from 1ms to 1e9s, found {}s", what, seconds));
  return std::chrono::duration_cast<Clock::duration>(time);
}

Clock::duration start_time(std::optional<Duration> stated, Clock::duration timeout,
                           const std::string& caller) {
  if (stated) return clock_time(*stated, caller + ": start_timeout");
  return std::max<Clock::duration>(timeout, std::chrono::seconds(30));
}

// A simulated slow link: says when a message may leave. The transport then waits until that time
// before it hands the message on. All communicators of a process share one link, as they would
// share a network card. For ranks that are threads each thread has its own.
//
// Example at 10 Gbit/s: three messages of 1.25 MB are sent at 0 ms on an idle link. Each takes 1.05
// ms with the headers of its frames, and 0.5 ms of idle time are saved. So they have left at 0.55,
// 1.59 and 2.64 ms.

namespace {

constexpr double kLeastRate = 0.125;  // bytes per second

/// The bytes that a message takes of an Ethernet link with an MTU of 1500 bytes. A frame has 1448
/// bytes of the message and 66 of headers (Ethernet, IPv4, TCP with timestamps).
double bytes_in_frames(std::size_t bytes) {
  constexpr std::size_t kPayload = 1448, kHeaders = 66;
  const std::size_t frames = std::max<std::size_t>(1, (bytes + kPayload - 1) / kPayload);
  return static_cast<double>(bytes + frames * kHeaders);
}

struct LinkOfProcess {
  std::mutex mutex;
  std::optional<BytesPerSecond> rate;
  std::shared_ptr<Pacer> pacer;
};
LinkOfProcess& link_of_process() {
  static LinkOfProcess link;
  return link;
}

}  // namespace

Pacer::Clock::time_point Pacer::departure(std::size_t bytes, Clock::time_point now) {
  const std::chrono::duration<double> busy(bytes_in_frames(bytes) / rate_.value);
  const std::lock_guard lock(mutex_);
  free_at_ = std::max(free_at_, now - kSaved) + std::chrono::ceil<Clock::duration>(busy);
  return free_at_;
}

void set_link(std::optional<BytesPerSecond> rate) {
  if (rate && !(rate->value >= kLeastRate))  // false for NaN too
    throw UsageError(fmt::format("expected a link of at least 1bit/s, found {}B/s", rate->value));
  LinkOfProcess& link = link_of_process();
  const std::lock_guard lock(link.mutex);
  if (link.rate == rate) return;  // later communicators share the link of earlier ones
  link.rate = rate;
  link.pacer = rate ? std::make_shared<Pacer>(*rate) : nullptr;
}

std::optional<BytesPerSecond> link_rate() {
  LinkOfProcess& link = link_of_process();
  const std::lock_guard lock(link.mutex);
  return link.rate;
}

std::shared_ptr<Pacer> pacer_of_process() {
  LinkOfProcess& link = link_of_process();
  const std::lock_guard lock(link.mutex);
  return link.pacer;
}

std::shared_ptr<Pacer> pacer_of_thread() {
  const std::optional<BytesPerSecond> rate = link_rate();
  return rate ? std::make_shared<Pacer>(*rate) : nullptr;
}

}  // namespace linerate::comm
