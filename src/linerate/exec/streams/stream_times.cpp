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
#include "linerate/core/statistics.hpp"

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

// Times work that a host enqueues on a device, without the host's own time in it. A device that
// waits for its host would seem slow. So other work is enqueued before, long enough that all
// launches of the timed work are queued when the device gets to them.
//
// Example: a kind of work is 10 calls, the host needs 5 us for each launch and the device 2 us.
// Without other work the device would wait for each launch, and seem to need 5 us. An earlier round
// finds that the host takes 50 us. So the device is given 75 us of other work first. When that is
// over, all 10 calls are queued, and the marks around them are 20 us apart.

namespace {

constexpr StreamId kTimedStream = 0;
/// Other work lasts 1.5 times as long as the host took to enqueue a kind of work in an earlier
/// round.
constexpr double kFillMargin = 1.5;
constexpr double kMostFills = 64;
/// The most seconds that the host may take for one kind of work: some 300 to 800 launches.
constexpr double kMostHostSeconds = 3e-3;
constexpr double kSecondsPerNs = 1e-9;

}  // namespace

QueueTimer::QueueTimer(std::shared_ptr<StreamClock> clock, std::function<void()> fill)
    : clock_(std::move(clock)), fill_(std::move(fill)) {
  if (is_immediate()) return;
  constexpr int kCalls = 4;
  fill_();  // libraries are loaded in the first one
  clock_->set(0, kTimedStream);
  for (int call = 0; call < kCalls; ++call) fill_();
  clock_->set(1, kTimedStream);
  clock_->wait_for(1);
  fill_s_ = kSecondsPerNs * clock_->ns_between(0, 1) / kCalls;
}

void QueueTimer::fill_for(double host_s) {
  const double calls = std::min(std::ceil(kFillMargin * host_s / fill_s_), kMostFills);
  for (int call = 0; call < calls; ++call) fill_();
}

/// Enqueues each work once, between marks, and reads its times.
///
/// Each work has a mark before it, one before its last call, and one after it. The second mark
/// tells whether all calls were queued in time. The host looks at it when it has enqueued the last
/// call. If the device has passed the mark by then, it had run out of work and waited for the host.
/// Calls are alike, so a queue that runs dry between two calls is dry at the last one, too.
///
/// `before`: the times of an earlier round, which tell how much other work to enqueue. Empty: none.
std::vector<CallTimes> QueueTimer::run_round(const std::vector<QueuedCalls>& work,
                                             const std::vector<CallTimes>& before) {
  std::vector<CallTimes> times(work.size());
  const auto mark = [](std::size_t p, int which) { return 3 * static_cast<MarkId>(p) + which; };
  for (std::size_t p = 0; p < work.size(); ++p) {
    if (!before.empty()) fill_for(before[p].host_s * work[p].count);
    clock_->set(mark(p, 0), kTimedStream);
    const std::int64_t begin_ns = clock_->host_ns();
    for (int call = 0; call < work[p].count; ++call) {
      if (!is_immediate() && call + 1 == work[p].count) clock_->set(mark(p, 1), kTimedStream);
      work[p].enqueue(call);
    }
    if (!is_immediate()) {
      times[p].host_s = kSecondsPerNs * static_cast<double>(clock_->host_ns() - begin_ns);
      times[p].was_queued = !clock_->is_over(mark(p, 1));
    }
    clock_->set(mark(p, 2), kTimedStream);
  }
  if (!work.empty()) clock_->wait_for(mark(work.size() - 1, 2));
  for (std::size_t p = 0; p < work.size(); ++p) {
    times[p].device_s = kSecondsPerNs * clock_->ns_between(mark(p, 0), mark(p, 2)) / work[p].count;
    times[p].host_s /= work[p].count;
  }
  return times;
}

std::vector<CallTimes> QueueTimer::time(std::vector<QueuedCalls> work, int rounds) {
  std::vector<CallTimes> found = run_round(work, {});  // reserves memory, loads code
  std::vector<CallTimes> before;
  if (!is_immediate()) {
    found = before = run_round(work, {});  // what the host takes if nothing holds it up
    double slowest_s = 0;
    for (const CallTimes& times : before) slowest_s = std::max(slowest_s, times.host_s);
    const double most = std::max(1.0, std::floor(kMostHostSeconds / slowest_s));
    for (QueuedCalls& calls : work)
      calls.count = static_cast<int>(std::min<double>(calls.count, most));
  }
  std::vector<std::vector<double>> device_s(work.size());
  std::vector<int> queued(work.size());
  for (int round = 0; round < rounds; ++round) {
    const std::vector<CallTimes> times = run_round(work, before);
    for (std::size_t p = 0; p < work.size(); ++p) {
      device_s[p].push_back(times[p].device_s);
      queued[p] += times[p].was_queued ? 1 : 0;
    }
  }
  for (std::size_t p = 0; p < work.size(); ++p) {
    found[p].device_s = median(device_s[p]);
    found[p].was_queued = 2 * queued[p] > rounds;
  }
  return found;
}

}  // namespace linerate::exec
