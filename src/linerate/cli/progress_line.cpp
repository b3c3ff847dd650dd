#include "linerate/cli/progress_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace linerate::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSilence{1};  // what is done by then needs no progress
constexpr std::chrono::milliseconds kPause{200};
constexpr const char* kEmptyLine = "\r\033[K";

}  // namespace

// A file or a pipe gets no progress: there each line would be kept.
ProgressLine::ProgressLine(bool quiet)
    : shows_(!quiet && ::isatty(STDERR_FILENO) != 0), next_(Clock::now() + kSilence) {}

// Calls may come by the thousand a second: most return at the first test.
void ProgressLine::show(const std::string& text) {
  if (!shows_ || Clock::now() < next_) return;
  next_ = Clock::now() + kPause;
  on_screen_ = true;
  fmt::print(stderr, "{}{}", kEmptyLine, text);
  std::fflush(stderr);
}

// The line is emptied, not ended: what is printed next takes its place.
void ProgressLine::clear() {
  if (on_screen_) fmt::print(stderr, "{}", kEmptyLine);
  on_screen_ = false;
}

}  // namespace linerate::cli
