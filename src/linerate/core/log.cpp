#include "linerate/core/log.hpp"

#include <mutex>

namespace linerate::log {
namespace {

std::mutex mutex;
Sink installed;

void hand_over(Level level, const std::string& message) {
  const std::lock_guard lock(mutex);
  if (installed) installed(level, message);
}

}  // namespace

void set_sink(Sink sink) {
  const std::lock_guard lock(mutex);
  installed = std::move(sink);
}
void info(const std::string& message) { hand_over(Level::info, message); }
void warning(const std::string& message) { hand_over(Level::warning, message); }

}  // namespace linerate::log
