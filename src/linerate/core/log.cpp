#include "linerate/core/error.hpp"

#include <cstdio>
#include <memory>
#include <mutex>

namespace linerate::log {
namespace {

struct Installed {
  std::mutex mutex;
  std::shared_ptr<const Sink> sink;
};

/// The installed sink. It is never destroyed, because threads and destructors of statics warn until
/// the very end.
Installed& installed() {
  static Installed& one = *new Installed;
  return one;
}

/// Prints a record with one call of stdio for the whole line, so that lines of several threads do
/// not mix.
void print(Level level, const std::string& message) noexcept {
  if (level == Level::warning) std::fprintf(stderr, "linerate: warning: %s\n", message.c_str());
}

/// Gives a record to the sink. The sink runs outside the lock. A sink that logs, or that waits for
/// a thread that logs (Python's interpreter lock), would else wait for itself.
void hand_over(Level level, const std::string& message) noexcept {
  static thread_local bool inside = false;
  try {
    std::shared_ptr<const Sink> sink;
    {
      const std::lock_guard lock(installed().mutex);
      sink = installed().sink;
    }
    if (!sink || inside) return print(level, message);
    const struct Inside {
      Inside() { inside = true; }
      ~Inside() { inside = false; }
    } guard;
    (*sink)(level, message);
  } catch (...) {
    print(level, message);
  }
}

}  // namespace

void set_sink(Sink sink) {
  auto next = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(installed().mutex);
  // `next` has the old sink now, which is destroyed after the lock is released.
  installed().sink.swap(next);
}
void info(const std::string& message) noexcept { hand_over(Level::info, message); }
void warning(const std::string& message) noexcept { hand_over(Level::warning, message); }

}  // namespace linerate::log
