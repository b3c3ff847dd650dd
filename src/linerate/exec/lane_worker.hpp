// The thread of a lane: runs one task after the other, sleeps in between.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace linerate::exec {

class LaneWorker {
 public:
  LaneWorker() : thread_([this] { loop(); }) {}
  /// Waits for the task that is running, and drops those that have not begun.
  ~LaneWorker();

  /// `work` throws nothing.
  void post(std::function<void()> work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace linerate::exec
