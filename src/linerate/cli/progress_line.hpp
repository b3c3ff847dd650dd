// The one line of progress that a verb shows while it works.
#pragma once

#include <chrono>
#include <string>

#include "linerate/verbs/caller.hpp"

namespace linerate::cli {

/// A line on standard error that is written over, at most five times a second, from the end of the
/// first second on. Nothing if standard error is no terminal, or `quiet` (ranks but the first).
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet = false);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// In place of the text before.
  void show(const std::string& text);
  /// For a verb whose progress this line shows; it outlives the call.
  verbs::Caller caller() {
    return {.progress = [this](const std::string& text) { show(text); }};
  }
  /// Before anything else is printed.
  void clear();

 private:
  bool shows_;
  bool on_screen_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace linerate::cli
