// A Communicator over any Channel: a queue of submitted collectives and the one thread that runs
// them, first in, first out. The thread sleeps while there is nothing to do.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/channel.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

class QueuedCommunicator final : public Communicator {
 public:
  QueuedCommunicator(std::unique_ptr<Channel> channel, const CommunicatorOptions& options);
  /// Finishes what was submitted, then leaves the job: peers that go on waiting for this rank are
  /// told so.
  ~QueuedCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return channel_->transport(); }

  WorkPtr all_reduce(Buffer buffer, Reduce op, std::string name) override;
  WorkPtr reduce_scatter(ConstBuffer input, Buffer output, Reduce op, std::string name) override;
  WorkPtr all_gather(ConstBuffer input, Buffer output, std::string name) override;
  WorkPtr all_gather_v(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts,
                       std::string name) override;
  WorkPtr all_to_all(ConstBuffer input, Buffer output, std::string name) override;
  WorkPtr broadcast(Buffer buffer, int root, std::string name) override;
  WorkPtr barrier(std::string name) override;

  void set_checked(bool checked) override;
  Traffic traffic() const override { return channel_->traffic(); }

 private:
  class QueuedWork;
  struct Job {
    Fingerprint fingerprint{};
    ConstBuffer input{};
    Buffer output{};
    std::vector<std::int64_t> counts{};
    std::string name{};
    bool checked = false;
    std::shared_ptr<QueuedWork> work{};
  };

  WorkPtr submit(Job job, Operation operation);
  void loop();
  void execute(Job& job);
  void run_schedule(const Job& job);
  void compare_fingerprints(const Job& job);
  Purpose purpose_of(const Job& job, bool fingerprints) const;

  std::unique_ptr<Channel> channel_;
  int rank_, size_;
  ChunkPool pool_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  std::uint64_t submitted_ = 0;
  bool checked_, stopping_ = false;
  std::thread thread_;
};

}  // namespace linerate::comm
