// The queue of submitted collectives and the one thread that runs them, first in, first out, for
// all communicators split from one. The thread sleeps while the queue is empty.
//
// One thread and one order keep the ranks in step. If two ranks submit in the same order, their
// n-th collective is the same one. For example rank 0 submits A at 1 ms and B at 2 ms. Rank 1
// submits A at 5 ms and B at 6 ms. Rank 0's thread is inside A from 1 ms on and waits. Both finish
// A, say at 8 ms, and then begin B together.
//
// A Work is done when its result is in the caller's memory. Then its action (on_done) runs on this
// thread, before the next collective begins.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/comm/transport.hpp"

namespace linerate::comm {

/// One communicator as the queue sees it.
struct QueuedGroup {
  std::uint64_t number = 0;  // tells apart the communicators that two ranks share; 0: the whole job
  std::string name;          // empty for the whole job
  std::vector<int> members;  // ranks of the job, in the order of the ranks of the group
  int rank = 0;              // this one's, in the group
  std::optional<Channel> channel{};  // between the members
  std::shared_ptr<QueuedGroup>
      parent{};  // which counts this one's traffic too; null: the whole job
  std::atomic<std::int64_t> sent_bytes{0}, received_bytes{0};

  // Under the queue's mutex:
  bool checked = false;
  std::uint64_t submitted = 0;
  std::uint64_t unfinished = 0;  // collectives that are not done
  std::uint64_t pending = 0;     // those, and one whose waiters are being notified
};

class ProgressQueue : public std::enable_shared_from_this<ProgressQueue> {
 public:
  class QueuedWork;
  struct WaitAtLast;
  /// A submitted collective.
  struct Request {
    Fingerprint fingerprint{};
    Submission what{};
    std::shared_ptr<QueuedGroup> group{};
    bool checked = false;
    std::shared_ptr<QueuedWork> work{};
  };

  explicit ProgressQueue(std::unique_ptr<Transport> transport);
  /// Finishes what was submitted, then leaves the job: peers that still wait for this rank hear of
  /// it.
  ~ProgressQueue();

  /// All ranks of the transport.
  std::shared_ptr<QueuedGroup> whole(bool checked);
  /// A group of ranks of the job that the members have agreed on.
  std::shared_ptr<QueuedGroup> part(std::uint64_t number, std::string name,
                                    std::vector<int> members, int rank,
                                    std::shared_ptr<QueuedGroup> parent);
  /// The smallest group number that this rank has not seen.
  std::uint64_t next_number();

  /// Queues a collective. The last copy of the handle waits for a Work that is pending. If that
  /// copy goes because an exception unwinds, it ends the run first.
  WorkPtr submit(Request request);
  /// Sleeps until all that was submitted for the group is finished. With `unwinding`, ends the run
  /// first if anything is not finished.
  void drain(const QueuedGroup& group, bool unwinding);
  /// As Communicator::abort and busy.
  void abort(const std::string& reason);
  Busy busy(std::string what, std::optional<Duration> at_most);
  /// The process exits with this status while communicators exist. Ends the thread, so that the
  /// transport is called no more. Collectives that are pending stay so (a waiter must not act
  /// during an exit) and end the run; later submissions fail. Returns whether nothing was pending.
  bool stop_at_exit(int status);
  void set_checked(QueuedGroup& group, bool checked);
  Traffic traffic(const QueuedGroup& group) const;
  std::string transport() const { return transport_->name(); }

 private:
  void loop();
  void execute(Request& request);
  void run_schedule(Channel& channel, const Submission& what);
  void compare_fingerprints(Channel& channel, const Request& request);
  void count_traffic(QueuedGroup& group, const Traffic& before);
  void tell_busy();
  void join();

  std::unique_ptr<Transport> transport_;
  ChunkPool pool_;
  std::mutex mutex_;
  std::condition_variable wake_, drained_;
  std::deque<Request> queue_;
  std::uint64_t next_number_ = 1;
  bool stopping_ = false;
  bool look_ = false;     // abort() has left a reason with the transport
  bool exiting_ = false;  // the process exits
  std::uint64_t pending_ = 0;
  std::mutex join_mutex_;
  std::mutex busy_mutex_;
  std::list<BusyNote> busy_;
  std::thread thread_;
};

// A Communicator over any Transport: checks arguments and hands jobs to the queue that it shares
// with the communicators split from it.

class QueuedCommunicator final : public Communicator {
 public:
  QueuedCommunicator(std::unique_ptr<Transport> transport, bool checked);
  ~QueuedCommunicator() override;

  /// For whoever must stop it when the process exits.
  std::weak_ptr<ProgressQueue> queue() const { return queue_; }

  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->members.size()); }
  std::string transport() const override { return queue_->transport(); }

  bool reads_pieces() const override { return reads_pieces_; }
  [[nodiscard]] WorkPtr submit(Submission what) override;

  [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key, std::string name) override;

  void abort(const std::string& reason) override { queue_->abort(reason); }
  using Communicator::busy;
  [[nodiscard]] Busy busy(std::string what, std::optional<Duration> at_most) override {
    return queue_->busy(std::move(what), at_most);
  }
  void set_checked(bool checked) override { queue_->set_checked(*group_, checked); }
  Traffic traffic() const override { return queue_->traffic(*group_); }

 private:
  QueuedCommunicator(std::shared_ptr<ProgressQueue> queue, std::shared_ptr<QueuedGroup> group)
      : queue_(std::move(queue)), group_(std::move(group)) {}

  const bool reads_pieces_ = false;       // not in groups
  std::shared_ptr<ProgressQueue> queue_;  // lives as long as the last of the family
  std::shared_ptr<QueuedGroup> group_;
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace linerate::comm
