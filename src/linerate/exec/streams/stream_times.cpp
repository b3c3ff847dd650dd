// Times of moments in a device's streams, on the host's clock. A moment is a mark that is enqueued
// and read later, when the device has passed it, so that taking a time costs no wait. Devices
// measure only from one mark to another. So each step has an anchor, and moments count from the
// last anchor. Long times are thus sums of short ones.
//
// The device's clock may run at another rate than the host's. compare() finds moments whose times
// are known on both clocks. Example: the comparisons are at 0 and 1,000 ns of the device, which are
// 500 and 1,502 ns of the host. A moment at 400 ns of the device is then at 500 + 400 * 1.002 = 901
// ns of the host.
#include "linerate/exec/streams/stream_times.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/exec/streams/lane_streams.hpp"

namespace linerate::exec {

StreamTimes::StreamTimes(std::shared_ptr<StreamClock> clock) : clock_(std::move(clock)) {
  compare();
}

// ---- enqueuing ----

std::int64_t StreamTimes::now() { return set_in(LaneStreams::kComputeStream); }

std::int64_t StreamTimes::set_in(StreamId stream) {
  const std::lock_guard lock(mutex_);
  return enqueue(stream, false);
}

std::int64_t StreamTimes::begin_step() {
  const std::lock_guard lock(mutex_);
  read_what_is_over();
  return enqueue(LaneStreams::kComputeStream, true);
}

std::int64_t StreamTimes::enqueue(StreamId stream, bool is_anchor) {
  if (free_.empty()) free_.push_back(marks_++);
  const MarkId mark = free_.back();
  free_.pop_back();
  clock_->set(mark, stream);
  waiting_.push_back({mark, is_anchor, {}});
  const std::int64_t number = next_number() - 1;
  if (is_anchor) last_anchor_ = number;
  return number;
}

std::int64_t StreamTimes::latest_of(std::span<const std::int64_t> moments) {
  const std::lock_guard lock(mutex_);
  if (moments.empty()) return last_anchor_;
  if (moments.size() == 1) return moments.front();
  waiting_.push_back({-1, false, {moments.begin(), moments.end()}});
  return next_number() - 1;
}

std::int64_t StreamTimes::next_number() const {
  return static_cast<std::int64_t>(device_ns_.size() + waiting_.size());
}

// ---- reading ----

void StreamTimes::read_what_is_over() {
  while (!waiting_.empty() && (waiting_.front().mark < 0 || clock_->is_over(waiting_.front().mark)))
    take_next();
}

void StreamTimes::wait_and_read() {
  while (!waiting_.empty()) {
    if (waiting_.front().mark >= 0) clock_->wait_for(waiting_.front().mark);
    take_next();
  }
}

/// Reads the oldest moment that was not read. Its mark is free again, but an anchor's mark stays
/// until the next anchor is read, because moments in between count from it.
void StreamTimes::take_next() {
  const Moment moment = std::move(waiting_.front());
  waiting_.pop_front();
  const double device_ns = on_device(moment);
  device_ns_.push_back(device_ns);
  if (!moment.is_anchor) {
    if (moment.mark >= 0) free_.push_back(moment.mark);
    return;
  }
  if (anchor_ >= 0) free_.push_back(anchor_);
  anchor_ = moment.mark;
  anchor_ns_ = device_ns;
}

double StreamTimes::on_device(const Moment& moment) const {
  if (moment.mark >= 0)
    return anchor_ < 0 ? 0 : anchor_ns_ + clock_->ns_between(anchor_, moment.mark);
  double latest = device_ns_[to_index(moment.others.front())];
  for (const std::int64_t other : moment.others)
    latest = std::max(latest, device_ns_[to_index(other)]);
  return latest;
}

std::vector<std::int64_t> StreamTimes::read() {
  const std::lock_guard lock(mutex_);
  compare();
  std::vector<std::int64_t> times;
  for (const double device_ns : device_ns_) times.push_back(on_host(device_ns));
  return times;
}

std::vector<std::int64_t> StreamTimes::read_by_device() {
  const std::lock_guard lock(mutex_);
  wait_and_read();
  std::vector<std::int64_t> times;
  for (const double device_ns : device_ns_) times.push_back(std::llround(device_ns));
  return times;
}

// ---- the clocks ----

void StreamTimes::compare_clocks() {
  const std::lock_guard lock(mutex_);
  compare();
}

/// Compares the clocks. The first try also waits for all that was enqueued before it, so its two
/// host times are far apart and another try wins.
void StreamTimes::compare() {
  constexpr int kTries = 3;
  SameMoment closest;
  double apart = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto before = static_cast<double>(clock_->host_ns());
    enqueue(LaneStreams::kComputeStream, true);
    wait_and_read();
    const auto after = static_cast<double>(clock_->host_ns());
    if (i > 0 && after - before >= apart) continue;
    apart = after - before;
    closest = {anchor_ns_, before + apart / 2};
  }
  // A device that has not moved on since the one before has one time for both.
  if (!comparisons_.empty() && comparisons_.back().device_ns >= closest.device_ns) return;
  comparisons_.push_back(closest);
}

/// The host's time of a device's time, by the straight line through the comparisons around it.
/// Outside of all comparisons it counts from the nearest one at the same rate.
std::int64_t StreamTimes::on_host(double device_ns) const {
  const auto after =
      std::upper_bound(comparisons_.begin() + 1, comparisons_.end(), device_ns,
                       [](double ns, const SameMoment& c) { return ns < c.device_ns; });
  const SameMoment& from = *(after - 1);
  double rate = 1;
  if (after != comparisons_.end() && from.device_ns <= device_ns)
    rate = (after->host_ns - from.host_ns) / (after->device_ns - from.device_ns);
  return std::llround(from.host_ns + rate * (device_ns - from.device_ns));
}

}  // namespace linerate::exec
