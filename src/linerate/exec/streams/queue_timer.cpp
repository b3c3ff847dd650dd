#include "linerate/exec/streams/queue_timer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::exec {
namespace {

constexpr StreamId kTimedStream = 0;
/// The host may take half as long again as it took before.
constexpr double kFillMargin = 1.5;
/// So many fill a queue of 1024 launches by a sixteenth at most.
constexpr double kMostFills = 64;
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

/// Mark p is set before work p, mark `work.size()` after all; then there is one before the last
/// call of each. That one tells: a device that has come to it while the host enqueued the call had
/// nothing else to do. Calls are alike, so that a queue which runs dry in between is dry at the
/// end.
std::vector<CallTimes> QueueTimer::run_round(const std::vector<QueuedCalls>& work) {
  std::vector<CallTimes> times(work.size());
  const auto mark = [](std::size_t number) { return static_cast<MarkId>(number); };
  for (std::size_t p = 0; p < work.size(); ++p) {
    const MarkId before_last = mark(work.size() + 1 + p);
    clock_->set(mark(p), kTimedStream);
    const std::int64_t begin_ns = clock_->host_ns();
    for (int call = 0; call < work[p].count; ++call) {
      if (!is_immediate() && call + 1 == work[p].count) clock_->set(before_last, kTimedStream);
      work[p].enqueue(call);
    }
    if (is_immediate()) continue;
    times[p].host_s = kSecondsPerNs * static_cast<double>(clock_->host_ns() - begin_ns);
    times[p].was_queued = !clock_->is_over(before_last);
  }
  clock_->set(mark(work.size()), kTimedStream);
  clock_->wait_for(mark(work.size()));
  for (std::size_t p = 0; p < work.size(); ++p) {
    times[p].device_s = kSecondsPerNs * clock_->ns_between(mark(p), mark(p + 1)) / work[p].count;
    times[p].host_s /= work[p].count;
  }
  return times;
}

std::vector<CallTimes> QueueTimer::time(const std::vector<QueuedCalls>& work, int rounds) {
  std::vector<CallTimes> found = run_round(work);  // reserves memory, loads code
  if (!is_immediate()) found = run_round(work);    // what the host takes if nothing holds it up
  double host_s = 0;
  for (std::size_t p = 0; p < work.size(); ++p) host_s += found[p].host_s * work[p].count;
  std::vector<std::vector<double>> device_s(work.size());
  std::vector<int> queued(work.size());
  for (int round = 0; round < rounds; ++round) {
    if (!is_immediate()) fill_for(host_s);
    const std::vector<CallTimes> times = run_round(work);
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
