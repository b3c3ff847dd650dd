// Ends long work from outside. The caller that starts the work has the std::stop_source, and the
// work's loops over files and simulations ask throw_if_stopped().
#pragma once

#include <exception>
#include <stop_token>

namespace linerate {

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

}  // namespace linerate
