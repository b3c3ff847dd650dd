// Times collectives as a training step sees them: calls one after the other, on a link whose token
// bucket is empty.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// One call: `bytes` in the convention of core/dtype.hpp.
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

/// Calls of f32 collectives, all on the same arrays of zeros, submitted at once. Derived classes
/// carry the calls.
///
/// Shaped links have a token bucket. While the link is idle it fills, and the next bytes then pass
/// faster than the link carries them for long. So each run follows an all-reduce of at most 256 KiB
/// that empties the bucket. A run of several calls begins with two more that are not timed.
///
/// A call lasts from the end of the call before to its own end. If calls end at 3.0, 4.1 and 5.1
/// ms, the second one took 1.1 ms and the third 1.0 ms. The root of a broadcast does not wait, so a
/// broadcast lasts from the end of a barrier before it.
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

/// Replaces values by their mean over the ranks. Ranks leave a collective at different times and
/// make up for it in the next. Ranks 0, 1 and 2 may take 5, 7 and 6 ms, and then 7, 5 and 6 ms. The
/// means add up to 12 ms, as on each rank. The slowest times would add up to 14 ms. Collective.
void mean_over_ranks(comm::Communicator& communicator, std::vector<double>& values);

// Times collectives between the ranks of a job: operation and size -> samples that fit_cluster
// takes.

/// How far a probe is, 0 to 1; called on every rank.
using Progress = std::function<void(double)>;

struct CollectiveProbeOptions {
  Bytes smallest = KiB(1);
  Bytes largest = MiB(64);
  Duration budget{6};
  int fewest_rounds = 3;  // taken even beyond the budget
  int most_rounds = 400;
  Progress progress = {};
};

struct CollectiveProbe {
  std::vector<doc::CollectiveCost>
      tables;  // samples only: all-reduce, reduce-scatter, all-gather, broadcast
  /// Relative difference of the medians of odd and even rounds, the 90th percentile over all sizes:
  /// an A/A run.
  double noise_floor = 0;
  int rounds = 0;
  int added = 0;  // sizes measured because the fit missed their neighbours
};

/// Measures in rounds. A round is one train (CallTrain) of all sizes of all operations. Their order
/// is shuffled, so that a slow moment of the machine hits all alike. Short calls come several times
/// in a row.
///
/// Sizes are first those that fit the budget: all-reduce at every doubling, the others at every
/// second. After the fewest rounds, and after each that follows, sizes are added if the fit does
/// not foresee them (next_size). That takes at most half of the time left.
///
/// A round's time is the mean over ranks. A sample is the median over rounds, its spread their 10th
/// to 90th percentile. Collective; every rank returns the same.
CollectiveProbe probe_collectives(comm::Communicator& communicator,
                                  const CollectiveProbeOptions& options);

/// The same with another timer: what it says on each rank is agreed over `communicator`.
CollectiveProbe probe_collectives(comm::Communicator& communicator, CallTimer& timer,
                                  const CollectiveProbeOptions& options);

// Decides which size of a collective to measure next: samples so far -> a size, or none. Measures
// nothing itself.

/// One size of one collective with all its times so far.
struct ProbedSize {
  std::int64_t bytes = 0;
  double expected_s = 0;  // about what a call takes, while there are no times yet
  std::vector<double> seconds = {};
};

/// Median and 10th to 90th percentile of its times.
doc::CostSample sample_of(const ProbedSize& size);

/// The error that a size may have when the fit does not see it.
inline constexpr double kAllowedError = 0.10;

/// The size that the fit needs most. The fit misses some size worst if it has not seen it. The
/// answer is the geometric middle of the wider gap next to that size. `sizes` ascend, at least
/// three with times.
///
/// Example: 1, 4 and 8 MiB are measured, and without 4 MiB the fit misses it by 30 %. The gap from
/// 1 to 4 MiB is the wider one, so 2 MiB is measured next.
///
/// A size is no candidate in these cases:
///
/// - Its error is below kAllowedError.
/// - Its error is within the doubt in the medians of it and of its neighbours: repeating helps
/// there.
/// - Both gaps next to it are narrower than a tenth of the size: a jump has been located.
std::optional<std::int64_t> next_size(Collective kind, int ranks,
                                      const std::vector<ProbedSize>& sizes);

}  // namespace linerate::calibrate
