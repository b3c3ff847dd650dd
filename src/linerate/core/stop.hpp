// Ends long work from outside: whoever starts it holds the std::stop_source, loops over files and
// simulations ask.
#pragma once

#include <exception>
#include <stop_token>

namespace linerate {

/// Thrown by work that was asked to stop. No Error: nothing is wrong, and nothing that copes with
/// errors may go on.
struct Stopped : std::exception {
  const char* what() const noexcept override { return "stopped"; }
};

/// What can stop this thread's work, here and in the threads that side_by_side() and the readers of
/// traces start for it. Absent a StopScope, nothing.
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

}  // namespace linerate
