// A Communicator over any Transport: checks arguments and hands jobs to the queue that it shares
// with the communicators split from it.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/progress_queue.hpp"
#include "linerate/comm/transport.hpp"

namespace linerate::comm {

class QueuedCommunicator final : public Communicator {
 public:
  QueuedCommunicator(std::unique_ptr<Transport> transport, const CommunicatorOptions& options);
  ~QueuedCommunicator() override;

  /// For whoever must stop it when the process exits.
  std::weak_ptr<ProgressQueue> queue() const { return queue_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return queue_->transport(); }

  [[nodiscard]] WorkPtr all_reduce(Buffer buffer, Reduce op, std::string name) override;
  [[nodiscard]] WorkPtr reduce_scatter(ConstBuffer input, Buffer output, Reduce op,
                                       std::string name) override;
  [[nodiscard]] WorkPtr all_reduce(std::vector<Piece> pieces, Buffer array,
                                   std::string name) override;
  [[nodiscard]] WorkPtr reduce_scatter(std::vector<Piece> pieces, Buffer array,
                                       std::string name) override;
  bool reads_pieces() const override { return reads_pieces_; }
  [[nodiscard]] WorkPtr all_gather(ConstBuffer input, Buffer output, std::string name) override;
  [[nodiscard]] WorkPtr all_gather_v(ConstBuffer input, Buffer output,
                                     std::span<const std::int64_t> counts,
                                     std::string name) override;
  [[nodiscard]] WorkPtr all_to_all(ConstBuffer input, Buffer output, std::string name) override;
  [[nodiscard]] WorkPtr broadcast(Buffer buffer, int root, std::string name) override;
  [[nodiscard]] WorkPtr barrier(std::string name) override;

  [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key, std::string name) override;

  void abort(const std::string& reason) override { queue_->abort(reason); }
  using Communicator::busy;
  [[nodiscard]] Busy busy(std::string what, std::optional<Duration> at_most) override {
    return queue_->busy(std::move(what), at_most);
  }
  void set_checked(bool checked) override { queue_->set_checked(*group_, checked); }
  Traffic traffic() const override { return queue_->traffic(*group_); }

 private:
  using Request = ProgressQueue::Request;

  QueuedCommunicator(std::shared_ptr<ProgressQueue> queue, std::shared_ptr<QueuedGroup> group);
  WorkPtr submit(Request request, CollectiveCall call);

  const bool reads_pieces_ = false;       // not in groups: Channel::reads_peers
  std::shared_ptr<ProgressQueue> queue_;  // lives as long as the last of the family
  std::shared_ptr<QueuedGroup> group_;
  int rank_, size_;
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace linerate::comm
