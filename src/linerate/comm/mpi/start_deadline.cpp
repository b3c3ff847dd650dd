#include "linerate/comm/mpi/start_deadline.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "linerate/comm/launcher.hpp"
#include "linerate/core/text.hpp"

namespace linerate::comm {
namespace {

std::string message(std::chrono::steady_clock::duration limit) {
  const std::string rank =
      launcher_rank() ? fmt::format("rank {}: ", *launcher_rank()) : std::string();
  const std::string others = launcher_size() ? fmt::format(" of {}", *launcher_size()) : "";
  std::string text = fmt::format(
      "{}MPI: the job did not start within {}, because it waits for a rank{} that has not come "
      "this far, or is stopped or dead. Look at what each rank printed and at its process (ps). If "
      "ranks start slowly, raise the timeout",
      rank, format_time(std::chrono::duration<double>(limit).count()), others);
  for (const std::string& found : look_at_ranks()) text += "\n" + rank + found;
  return text;
}

}  // namespace

StartDeadline::StartDeadline(std::chrono::steady_clock::duration limit)
    : thread_([this, limit] {
        std::unique_lock lock(mutex_);
        if (over_.wait_for(lock, limit, [this] { return started_; })) return;
        fmt::print(stderr, "{}\n", message(limit));
        std::fflush(nullptr);
        // The first exit makes the launcher end the others, who are about to say the same.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        _exit(4);
      }) {}

StartDeadline::~StartDeadline() {
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  over_.notify_one();
  thread_.join();
}

}  // namespace linerate::comm
