// The clock of everything that is measured.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <stop_token>

namespace linerate {

/// std::chrono::steady_clock in nanoseconds: one clock for all processes of a host.
inline std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// Sleeps until this moment of steady_ns(), so it returns a little late. The kernel no longer
/// rounds the sleeps of this thread up by 50 us.
void sleep_until_ns(std::int64_t moment);

// Ends long work from outside. The caller that starts the work has the std::stop_source, and the
// work's loops over files and simulations ask throw_if_stopped().

/// Thrown by work that was asked to stop. It is not an Error, because nothing is wrong, and code
/// that copes with errors must not go on.
struct Stopped : std::exception {
  const char* what() const noexcept override { return "stopped"; }
};

/// The token that can stop this thread's work, here and in the threads that side_by_side() and the
/// readers of traces start for it. Without a StopScope nothing can stop it.
std::stop_token current_stop();
/// Throws Stopped if current_stop() says so; a few nanoseconds otherwise.
void throw_if_stopped();

/// As long as it lives, `stop` can stop this thread's work.
class StopScope {
 public:
  explicit StopScope(std::stop_token stop);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  std::stop_token before_;
};

// The same work on many things, on all cores.

/// Calls work(index, worker) once for each index below `count`. `worker` is below `workers`, and no
/// two calls with the same one run at a time. Returns when all is done. Throws the exception of the
/// lowest index, if there is one, and Stopped (clock.hpp) if the work was stopped. Which worker
/// takes which index is open.
void side_by_side(std::size_t count, std::size_t workers,
                  const std::function<void(std::size_t index, std::size_t worker)>& work);

}  // namespace linerate
