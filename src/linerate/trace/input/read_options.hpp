// How one file is read.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

namespace linerate::trace {

/// Bytes of JSON done so far, by one reader; called every few MB, from any of its threads, one call
/// at a time.
using Progress = std::function<void(std::size_t done)>;

/// The sum of what several readers report, each for itself.
class SharedProgress {
 public:
  /// `report` gets the sum; empty: not wanted.
  SharedProgress(Progress report, std::size_t readers)
      : report_(std::move(report)), done_(readers) {}

  /// For the reader `i`; valid as long as this lives.
  Progress of(std::size_t i) {
    if (!report_) return {};
    return [this, i](std::size_t bytes) {
      const std::lock_guard lock(mutex_);
      done_[i] = bytes;
      report_(std::accumulate(done_.begin(), done_.end(), std::size_t{0}));
    };
  }

 private:
  Progress report_;
  std::mutex mutex_;
  std::vector<std::size_t> done_;
};

struct ReadOptions {
  Progress progress = {};
  unsigned threads = 1;  // to read a large file with
};

}  // namespace linerate::trace
