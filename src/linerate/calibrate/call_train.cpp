// All calls of a train are submitted at once, and their ends are read afterwards. So nothing on the
// caller's side lies between two calls, and a short call's time is that of the transport.
// collective_probe.cpp and quick_probe.cpp measure with this; torch_adapter derives a series for
// devices.
#include "linerate/calibrate/call_train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

constexpr std::int64_t kElement = sizeof(float);
// Several times the buckets in use: 0.5 ms of the rate in tools/lab, 1 to 2 ms by tc's manual.
constexpr std::int64_t kEmptyingBytes = 256 << 10;

void require_timed(Collective kind) {
  switch (kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::broadcast:
      return;
    default:
      throw UsageError(
          fmt::format("probe: {} is not timed; expected all-reduce, reduce-scatter, all-gather, "
                      "all-to-all or broadcast",
                      name_of(kind)));
  }
}

/// Calls at the head of a run that still feel the calls before.
int untimed(const CallRun& run) { return run.calls > 1 ? 2 : 0; }

/// The mean of the middle half. Not of all: a sender may stall for many calls' time. Not the
/// median: short calls overlap, and may alternate between quick and slow.
double middle_mean(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t quarter = seconds.size() / 4;
  return mean(std::span(seconds).subspan(quarter, seconds.size() - 2 * quarter));
}

}  // namespace

int calls_in_a_run(double seconds_per_call) {
  constexpr double kLongCall = 0.010, kRun = 0.006, kMost = 16;
  if (seconds_per_call > kLongCall) return 1;
  return static_cast<int>(std::clamp(std::ceil(kRun / seconds_per_call), 2.0, kMost));
}

std::int64_t whole_blocks(std::int64_t bytes, int ranks) {
  const std::int64_t block = kElement * ranks;
  return (bytes + block - 1) / block * block;
}

void mean_over_ranks(comm::Communicator& communicator, std::vector<double>& values) {
  communicator.all_reduce(comm::buffer(values), comm::Reduce::sum, "probe times")->wait();
  for (double& v : values) v /= communicator.size();
}

CallSeries::CallSeries(std::int64_t largest_bytes)
    : largest_bytes_(largest_bytes), start_ns_(steady_ns()) {}

double CallSeries::elapsed() const { return static_cast<double>(steady_ns() - start_ns_) * 1e-9; }

/// `added` counts everything that was submitted, so it is the index of the next end. A timed call
/// then lasts from the end with the index before its own to its own.
std::vector<double> CallSeries::time(std::span<const CallRun> runs) {
  for (const CallRun& run : runs) require_timed(run.call.kind);
  const Call emptying{Collective::all_reduce, std::min(kEmptyingBytes, largest_bytes_)};
  meet();
  std::size_t added = 0;
  std::vector<std::vector<std::size_t>> timed(runs.size());  // by run: which of those added
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const CallRun& run = runs[r];
    add(emptying), ++added;
    for (int i = -untimed(run); i < run.calls; ++i) {
      if (run.call.kind == Collective::broadcast) add_barrier(), ++added;
      if (i >= 0) timed[r].push_back(added);
      add(run.call), ++added;
    }
  }
  const std::vector<double> ends = ends_ns();
  std::vector<double> middles;
  for (const std::vector<std::size_t>& run : timed) {
    std::vector<double> seconds;
    for (const std::size_t i : run) seconds.push_back((ends[i] - ends[i - 1]) * 1e-9);
    middles.push_back(middle_mean(std::move(seconds)));
  }
  return middles;
}

CallTrain::CallTrain(comm::Communicator& communicator, std::int64_t largest_bytes)
    : CallSeries(whole_blocks(largest_bytes, communicator.size())), communicator_(communicator) {
  const std::int64_t floats = whole_blocks(largest_bytes, communicator.size()) / kElement;
  whole_.assign(to_index(floats), 0.0f);
  part_.assign(to_index(floats / communicator.size()), 0.0f);
}

void CallTrain::meet() {
  works_.clear();
  communicator_.barrier("probe")->wait();
}

std::vector<double> CallTrain::ends_ns() {
  for (const comm::WorkPtr& work : works_) work->wait();
  std::vector<double> ends;
  for (const comm::WorkPtr& work : works_)
    ends.push_back(static_cast<double>(work->times().end_ns));
  return ends;
}

comm::WorkPtr CallTrain::submit(const Call& call) {
  const Elements whole{call.bytes / kElement}, part{whole.value / communicator_.size()};
  const comm::Buffer all{whole_.data(), whole, DType::f32}, own{part_.data(), part, DType::f32};
  switch (call.kind) {
    case Collective::all_reduce:
      return communicator_.all_reduce(all, comm::Reduce::sum, "probe");
    case Collective::reduce_scatter:
      return communicator_.reduce_scatter(all, own, comm::Reduce::sum, "probe");
    case Collective::all_gather:
      return communicator_.all_gather(own, all, "probe");
    case Collective::all_to_all:
      exchanged_.resize(whole_.size());
      return communicator_.all_to_all(all, {exchanged_.data(), whole, DType::f32}, "probe");
    default:
      return communicator_.broadcast(all, 0, "probe");
  }
}

}  // namespace linerate::calibrate
