// A deadline for MPI_Init and the first collectives of a job. They wait for every rank, for ever if
// one never starts. Private to comm/mpi.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace linerate::comm {

/// Unless destroyed in time, prints the missing ranks on stderr and ends the process with status 4.
/// There is no milder way: MPI_Init can be neither cancelled nor left, and no other thread may call
/// MPI meanwhile.
class StartDeadline {
 public:
  explicit StartDeadline(std::chrono::steady_clock::duration limit);
  ~StartDeadline();
  StartDeadline(const StartDeadline&) = delete;
  StartDeadline& operator=(const StartDeadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool started_ = false;
  std::thread thread_;
};

}  // namespace linerate::comm
