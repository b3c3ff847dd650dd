// Times collectives as a training step sees them: calls one after the other, on a link whose token
// bucket is empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/collective.hpp"

namespace linerate::calibrate {

/// One call: `bytes` in the convention of core/collective.hpp.
struct Call {
  Collective kind = Collective::all_reduce;
  std::int64_t bytes = 0;
};

/// The same call several times in a row.
struct CallRun {
  Call call;
  int calls = 1;
};

/// As many as take 6 ms, at most 16; one if a call takes more than 10 ms.
int calls_in_a_run(double seconds_per_call);

/// What a probe measures with.
class CallTimer {
 public:
  virtual ~CallTimer() = default;
  /// Seconds of a call of each run on this rank: the mean of the middle half of the run.
  /// Collective, with the same runs on every rank.
  virtual std::vector<double> time(std::span<const CallRun> runs) = 0;
  /// Seconds since the probe began, on this rank.
  virtual double elapsed() const = 0;
};

/// Calls of f32 collectives, all on the same arrays of zeros, submitted at once. Each run follows
/// an all-reduce of at most 256 KiB and, if it has several calls, two of them that are not timed: a
/// token bucket that filled while the link was idle, or waited for short messages, is then empty,
/// and lets nothing pass faster than the link carries it for long. A call lasts from the end of the
/// one before to its own; a broadcast, whose root does not wait, from the end of a barrier before
/// it. Whoever derives says what carries the calls.
class CallSeries : public CallTimer {
 public:
  explicit CallSeries(std::int64_t largest_bytes);

  /// Sizes of whole blocks up to the largest. Throws UsageError for a kind other than all-reduce,
  /// reduce-scatter, all-gather and broadcast.
  std::vector<double> time(std::span<const CallRun> runs) final;
  double elapsed() const final;

 private:
  /// All ranks are there.
  virtual void meet() = 0;
  /// Puts a call, or a barrier, after those before.
  virtual void add(const Call& call) = 0;
  virtual void add_barrier() = 0;
  /// Waits for what was put since meet(): when each was over, in ns of one clock.
  virtual std::vector<double> ends_ns() = 0;

  std::int64_t largest_bytes_, start_ns_;
};

/// Over a communicator.
class CallTrain final : public CallSeries {
 public:
  CallTrain(comm::Communicator& communicator, std::int64_t largest_bytes);

  /// One call; must be done before this is destroyed.
  [[nodiscard]] comm::WorkPtr submit(const Call& call);

 private:
  void meet() override;
  void add(const Call& call) override { works_.push_back(submit(call)); }
  void add_barrier() override { works_.push_back(communicator_.barrier("probe")); }
  std::vector<double> ends_ns() override;

  comm::Communicator& communicator_;
  std::vector<comm::WorkPtr> works_;
  std::vector<float> whole_, part_, exchanged_;
};

/// The next size from `bytes` on that gives every rank the same whole number of f32.
std::int64_t whole_blocks(std::int64_t bytes, int ranks);

/// In place, the same on every rank. Ranks leave a collective at different times and make up for it
/// in the next: means add up, the slowest or the fastest rank's times do not. Collective.
void mean_over_ranks(comm::Communicator& communicator, std::vector<double>& values);

}  // namespace linerate::calibrate
