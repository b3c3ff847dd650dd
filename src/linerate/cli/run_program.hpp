// Runs a program's verbs and turns what they throw into text and an exit status.
#pragma once

#include <chrono>
#include <string>

#include "linerate/verbs/option_checks.hpp"

namespace linerate::cli {

/// The exit status: 0, 2 usage, 3 input, 4 communication, 5 device, 70 internal. If a job's ranks
/// fail alike, only rank 0 says why; one that fails on its own says so after "rank N:".
int run_program(CLI::App& app, int argc, char** argv);

// The one line of progress that a verb shows while it works.

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

// Starts another program of linerate in place of this one.

/// `program` is in this one's folder and gets the same arguments, the verb first. Throws UsageError
/// if it cannot be started: it was not built.
[[noreturn]] void start_beside(const std::string& program);

}  // namespace linerate::cli
