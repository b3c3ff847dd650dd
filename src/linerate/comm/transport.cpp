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
  count_sent(bytes);
  if (!pacer_) return start_send(peer, data, bytes, tag(peer), transfer);
  waiting_.push_back(
      {pacer_->departure(bytes, Clock::now()), peer, data, bytes, tag(peer), &transfer});
  start_due_sends();
}

void Transport::start_due_sends() {
  while (!waiting_.empty() && waiting_.front().departure <= Clock::now()) {
    const WaitingSend next = waiting_.front();
    waiting_.pop_front();
    start_send(next.peer, next.data, next.bytes, next.tag, *next.transfer);
  }
}

std::optional<Clock::time_point> Transport::next_departure() const {
  return waiting_.empty() ? std::nullopt : std::optional(waiting_.front().departure);
}

Clock::time_point Transport::or_next_departure(Clock::time_point wake) const {
  return std::min(wake, next_departure().value_or(wake));
}

std::uint64_t Transport::tag(int peer) const {
  return comparing_ ? tag_.comparison(life_->begun(peer))
                    : tag_.payload(life_->history(peer), purpose_.print->call);
}

void Transport::throw_failure(const std::string& reason) const {
  throw CommError(fmt::format("rank {}: {}: {}", rank(), purpose_.print->describe(), reason));
}

}  // namespace linerate::comm
