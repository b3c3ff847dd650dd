// A rank that throws ends the run for the others, which else would wait for it until the timeout.
// Its exception is the one that the caller gets, and theirs only say that it failed.
#include "linerate/comm/thread/run_ranks.hpp"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "linerate/comm/queued_communicator.hpp"
#include "linerate/comm/thread/thread_channel.hpp"
#include "linerate/comm/timeout.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

void run_ranks(int n, const std::function<void(Communicator&)>& f,
               const CommunicatorOptions& options) {
  if (n < 1) throw UsageError(fmt::format("run_ranks: expected at least 1 rank, found {}", n));
  // Shared with the channels: a group that f hands out keeps its rank's channel.
  const auto world =
      std::make_shared<ThreadWorld>(n, clock_time(options.timeout, "run_ranks: timeout"));
  std::mutex mutex;
  std::exception_ptr first;
  const auto run_one = [&](int rank) {
    QueuedCommunicator communicator(world->channel(rank), options);
    try {
      f(communicator);
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      {
        const std::lock_guard lock(mutex);
        if (!first) first = error;
      }
      world->fail(fmt::format("rank {} failed: {}", rank, text_of(error)));
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(run_one, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace linerate::comm
