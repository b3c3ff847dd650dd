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

ProgressLine::ProgressLine(bool quiet)
    : shows_(!quiet && ::isatty(STDERR_FILENO) != 0), next_(Clock::now() + kSilence) {}

void ProgressLine::show(const std::string& text) {
  if (!shows_ || Clock::now() < next_) return;
  next_ = Clock::now() + kPause;
  on_screen_ = true;
  fmt::print(stderr, "{}{}", kEmptyLine, text);
  std::fflush(stderr);
}

void ProgressLine::clear() {
  if (on_screen_) fmt::print(stderr, "{}", kEmptyLine);
  on_screen_ = false;
}

}  // namespace linerate::cli
