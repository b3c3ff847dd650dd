#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "linerate/core/clock.hpp"

namespace linerate {
namespace {

std::stop_token& stop_of_this_thread() {
  thread_local std::stop_token stop;
  return stop;
}

}  // namespace

void sleep_until_ns(std::int64_t moment) {
  thread_local const int precise = prctl(PR_SET_TIMERSLACK, 1);
  static_cast<void>(precise);
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(moment))));
}

std::stop_token current_stop() { return stop_of_this_thread(); }

void throw_if_stopped() {
  if (stop_of_this_thread().stop_requested()) throw Stopped();
}

StopScope::StopScope(std::stop_token stop)
    : before_(std::exchange(stop_of_this_thread(), std::move(stop))) {}
StopScope::~StopScope() { stop_of_this_thread() = std::move(before_); }

// Workers take the next index from a counter, so a long piece of work holds up only its own worker.
// Exceptions are kept by index. So the caller gets the same one in every run, whichever worker was
// first.

void side_by_side(std::size_t count, std::size_t workers,
                  const std::function<void(std::size_t index, std::size_t worker)>& work) {
  workers = std::clamp<std::size_t>(workers, 1, std::max<std::size_t>(count, 1));
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<std::size_t> next = 0;
  const auto take = [&, stop = current_stop()](std::size_t worker) {
    const StopScope scope(stop);
    for (std::size_t i = next++; i < count; i = next++) try {
        throw_if_stopped();
        work(i, worker);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t w = 1; w < workers; ++w) others.emplace_back(take, w);
    take(0);
  }
  for (const std::exception_ptr& e : thrown)
    if (e) std::rethrow_exception(e);
}

}  // namespace linerate
