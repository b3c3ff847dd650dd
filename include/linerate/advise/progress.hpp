// How much of advise()'s work is done.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>

namespace linerate::advise {

/// Strategies planned and simulated, and how many that will be at most. A search that ends early
/// lowers `total`, and both are equal in the end. `done` is never above it. Calls never overlap,
/// but may come from several threads.
using OnProgress = std::function<void(std::size_t done, std::size_t total)>;

/// Counts for OnProgress.
/// Thread safety: expect(), did_one() and spare() from any thread; done() while no other calls
/// them.
class Progress {
 public:
  /// Tells `on_progress`; an empty one is told nothing.
  explicit Progress(OnProgress on_progress) : on_progress_(std::move(on_progress)) {}

  /// Work to come, before any is done.
  void expect(std::size_t runs);
  /// One of the runs expected is done.
  void did_one();
  /// Runs done so far.
  std::size_t done() const { return done_; }
  /// So many of those expected are not needed after all.
  void spare(std::size_t runs);

 private:
  OnProgress on_progress_;
  std::mutex mutex_;
  std::size_t done_ = 0, total_ = 0;
};

/// Part of the work, which does at most so many runs; what it leaves is spared at its end. At most
/// one at a time.
/// Thread safety: one thread at a time.
class Stage {
 public:
  /// Begins a part of at most `most` runs.
  Stage(Progress& progress, std::size_t most)
      : progress_(progress), begin_(progress.done()), most_(most) {}
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  Progress& progress_;
  std::size_t begin_, most_;
};

}  // namespace linerate::advise
