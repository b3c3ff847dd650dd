#include "linerate/comm/queued_communicator.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "linerate/comm/schedule/schedule.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/hash.hpp"

namespace linerate::comm {
namespace {

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void require(bool condition, std::string_view operation, const std::string& name,
             const std::string& expected) {
  if (!condition) {
    throw UsageError(fmt::format("{} \"{}\": expected {}", operation, name, expected));
  }
}

}  // namespace

class QueuedCommunicator::QueuedWork final : public Work {
 public:
  void wait() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
    if (error_) throw CommError(*error_);
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  WorkTimes times() const override {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  void finish(WorkTimes times, std::optional<std::string> error) {
    {
      const std::lock_guard lock(mutex_);
      times_ = times;
      error_ = std::move(error);
      done_ = true;
    }
    finished_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  WorkTimes times_;
  // Text, not an exception_ptr: each wait() throws an exception of its own, which no other thread
  // holds.
  std::optional<std::string> error_;
  bool done_ = false;
};

QueuedCommunicator::QueuedCommunicator(std::unique_ptr<Channel> channel,
                                       const CommunicatorOptions& options)
    : channel_(std::move(channel)),
      rank_(channel_->rank()),
      size_(channel_->size()),
      pool_(channel_->chunk_bytes()),
      checked_(options.checked),
      thread_([this] { loop(); }) {}

QueuedCommunicator::~QueuedCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void QueuedCommunicator::set_checked(bool checked) {
  const std::lock_guard lock(mutex_);
  checked_ = checked;
}

WorkPtr QueuedCommunicator::submit(Job job, Operation operation) {
  Fingerprint& print = job.fingerprint;
  print.operation = operation;
  print.dtype = job.output.dtype;
  print.set_name(job.name);
  job.work = std::make_shared<QueuedWork>();
  WorkPtr work = job.work;
  {
    const std::lock_guard lock(mutex_);
    print.sequence = submitted_++;
    job.checked = checked_;
    queue_.push_back(std::move(job));
    channel_->set_submitted(submitted_);
  }
  wake_.notify_one();
  return work;
}

void QueuedCommunicator::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (queue_.empty()) {
      if (stopping_) break;
      wake_.wait_for(lock, channel_->idle_period(),
                     [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) {
        lock.unlock();
        channel_->service();
        lock.lock();
      }
      continue;
    }
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    execute(job);
    lock.lock();
  }
  lock.unlock();
  channel_->leave();
}

Purpose QueuedCommunicator::purpose_of(const Job& job, bool fingerprints) const {
  return {job.fingerprint.sequence, fingerprints,
          fmt::format("rank {}: {}", rank_, job.fingerprint.describe())};
}

void QueuedCommunicator::execute(Job& job) {
  WorkTimes times{now_ns(), 0};
  std::optional<std::string> error;
  try {
    if (job.checked && size_ > 1) {
      compare_fingerprints(job);
      times.start_ns = now_ns();
    }
    channel_->begin(purpose_of(job, false));
    run_schedule(job);
  } catch (const std::exception& e) {
    error = e.what();
  }
  times.end_ns = now_ns();
  const std::shared_ptr<QueuedWork> work = std::move(job.work);
  work->finish(times, std::move(error));
}

/// All to all, P-1 messages each: one latency deep, and every rank reads the same P fingerprints.
void QueuedCommunicator::compare_fingerprints(const Job& job) {
  channel_->begin(purpose_of(job, true));
  std::vector<Fingerprint> prints(static_cast<std::size_t>(size_));
  std::vector<Transfer> sends(prints.size()), receives(prints.size());
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    const auto i = static_cast<std::size_t>(peer);
    channel_->receive(peer, &prints[i], sizeof(Fingerprint), receives[i]);
    channel_->send(peer, &job.fingerprint, sizeof(Fingerprint), sends[i]);
  }
  for (std::size_t i = 0; i < prints.size(); ++i) {
    wait(*channel_, receives[i]);
    wait(*channel_, sends[i]);
  }
  prints[static_cast<std::size_t>(rank_)] = job.fingerprint;
  if (const auto mismatch = find_mismatch(prints)) throw CommError(*mismatch);
}

void QueuedCommunicator::run_schedule(const Job& job) {
  Channel& channel = *channel_;
  const Fingerprint& print = job.fingerprint;
  switch (print.operation) {
    case Operation::all_reduce:
      return comm::all_reduce(channel, pool_, job.output, print.reduce);
    case Operation::reduce_scatter:
      return comm::reduce_scatter(channel, pool_, job.input, job.output, print.reduce);
    case Operation::all_gather:
    case Operation::all_gather_v:
      return comm::all_gather(channel, pool_, job.input, job.output, job.counts);
    case Operation::all_to_all:
      return comm::all_to_all(channel, pool_, job.input, job.output);
    case Operation::broadcast:
      return comm::broadcast(channel, pool_, job.output, print.root);
    case Operation::barrier:
      return comm::barrier(channel);
  }
}

WorkPtr QueuedCommunicator::all_reduce(Buffer buffer, Reduce op, std::string name) {
  Job job{.output = buffer, .name = std::move(name)};
  job.fingerprint.count = buffer.count.value;
  job.fingerprint.reduce = op;
  return submit(std::move(job), Operation::all_reduce);
}

WorkPtr QueuedCommunicator::reduce_scatter(ConstBuffer input, Buffer output, Reduce op,
                                           std::string name) {
  require(input.dtype == output.dtype, "reduce-scatter", name, "one dtype for input and output");
  require(input.count.value == size_ * output.count.value, "reduce-scatter", name,
          fmt::format("an input of {} ranks x {} elements, found {}", size_, output.count.value,
                      input.count.value));
  Job job{.input = input, .output = output, .name = std::move(name)};
  job.fingerprint.count = input.count.value;
  job.fingerprint.reduce = op;
  return submit(std::move(job), Operation::reduce_scatter);
}

WorkPtr QueuedCommunicator::all_gather(ConstBuffer input, Buffer output, std::string name) {
  require(input.dtype == output.dtype, "all-gather", name, "one dtype for input and output");
  require(output.count.value == size_ * input.count.value, "all-gather", name,
          fmt::format("an output of {} ranks x {} elements, found {}", size_, input.count.value,
                      output.count.value));
  Job job{.input = input, .output = output, .name = std::move(name)};
  job.counts.assign(static_cast<std::size_t>(size_), input.count.value);
  job.fingerprint.count = input.count.value;
  return submit(std::move(job), Operation::all_gather);
}

WorkPtr QueuedCommunicator::all_gather_v(ConstBuffer input, Buffer output,
                                         std::span<const std::int64_t> counts, std::string name) {
  require(input.dtype == output.dtype, "all-gather-v", name, "one dtype for input and output");
  require(static_cast<int>(counts.size()) == size_, "all-gather-v", name,
          fmt::format("{} counts, one a rank, found {}", size_, counts.size()));
  Job job{.input = input, .output = output, .name = std::move(name)};
  job.counts.assign(counts.begin(), counts.end());
  job.fingerprint.counts_hash = kHashStart;
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    require(count >= 0, "all-gather-v", job.name, "counts >= 0");
    total += count;
    job.fingerprint.counts_hash =
        hash_value(static_cast<std::uint64_t>(count), job.fingerprint.counts_hash);
  }
  require(input.count.value == counts[static_cast<std::size_t>(rank_)], "all-gather-v", job.name,
          fmt::format("an input of counts[{}] = {} elements, found {}", rank_,
                      counts[static_cast<std::size_t>(rank_)], input.count.value));
  require(output.count.value == total, "all-gather-v", job.name,
          fmt::format("an output of {} elements, the sum of the counts, found {}", total,
                      output.count.value));
  job.fingerprint.count = input.count.value;
  return submit(std::move(job), Operation::all_gather_v);
}

WorkPtr QueuedCommunicator::all_to_all(ConstBuffer input, Buffer output, std::string name) {
  require(input.dtype == output.dtype, "all-to-all", name, "one dtype for input and output");
  require(input.count.value == output.count.value && input.count.value % size_ == 0, "all-to-all",
          name, fmt::format("input and output of the same count, a multiple of {}", size_));
  require(input.data != output.data || input.count.value == 0, "all-to-all", name,
          "separate memory for input and output");
  Job job{.input = input, .output = output, .name = std::move(name)};
  job.fingerprint.count = input.count.value;
  return submit(std::move(job), Operation::all_to_all);
}

WorkPtr QueuedCommunicator::broadcast(Buffer buffer, int root, std::string name) {
  require(root >= 0 && root < size_, "broadcast", name,
          fmt::format("a root in 0..{}, found {}", size_ - 1, root));
  Job job{.output = buffer, .name = std::move(name)};
  job.fingerprint.count = buffer.count.value;
  job.fingerprint.root = root;
  return submit(std::move(job), Operation::broadcast);
}

WorkPtr QueuedCommunicator::barrier(std::string name) {
  return submit(Job{.name = std::move(name)}, Operation::barrier);
}

}  // namespace linerate::comm
