// Times work that a host enqueues on a device, without the host's own time in it. A device that
// waits for its host would seem slow. So other work is enqueued before, long enough that all
// launches of the timed work are queued when the device gets to them.
//
// Example: a kind of work is 10 calls, the host needs 5 us for each launch and the device 2 us.
// Without other work the device would wait for each launch, and seem to need 5 us. An earlier round
// finds that the host takes 50 us. So the device is given 75 us of other work first. When that is
// over, all 10 calls are queued, and the marks around them are 20 us apart.
#include "linerate/exec/streams/queue_timer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::exec {
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
