// Random data-parallel jobs on devices whose hosts run ahead, with a cause of delay that is known:
// what their traces would record, and what the step would gain without the cause. Unlike
// synthetic_job.hpp, hosts launch, devices follow, and every time has noise.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/explain/causes.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {

enum class Fault : std::uint8_t {
  none,
  late_rank,          // one host sleeps before each step
  late_in_backward,   // one host sleeps in a hook
  slow_device,        // one rank's kernels of forward take longer
  loader,             // every rank waits for its data loader
  shared_pause,       // every host sleeps before each step
  pause_in_backward,  // every host sleeps in a hook
  slow_network
};
inline constexpr std::array<std::string_view, 8> kFaultNames = {
    "none",   "late rank",    "late in backward",  "slow device",
    "loader", "shared pause", "pause in backward", "slow network"};
/// Against it.
constexpr Remedy remedy_of(Fault f) {
  using enum Remedy;
  constexpr std::array<Remedy, kFaultNames.size()> all = {
      no_stragglers,  no_stragglers, no_stragglers, no_stragglers,
      no_data_stalls, no_host_gaps,  no_host_gaps,  infinitely_fast_network};
  return all[static_cast<std::size_t>(f)];
}

/// Microseconds.
class SimulatedJob {
 public:
  /// `slow_host`: the host of the rank at fault is a little slower than its device, all the time.
  SimulatedJob(std::uint64_t seed, Fault fault, bool slow_host = false)
      : seed_(seed), fault_(fault), slow_host_(slow_host) {
    std::uint64_t drawn = 0;
    const auto between = [&](double low, double high) {
      return low + (high - low) * random_unit(seed, drawn++);
    };
    ranks = between(0, 1) < 0.5 ? 2 : 4;
    layers_ = static_cast<int>(between(12, 40));
    layer_us_ = between(100, 600);
    launch_us_ = layer_us_ * between(0.15, 0.7);  // hosts keep ahead
    buckets_ = static_cast<int>(between(2, 6));
    const double backward_us = 2 * layer_us_ * layers_;
    transfer_us_ = backward_us * between(0.3, 2.0) / buckets_;
    delay_us_ = (1.5 * backward_us) * between(0.2, 1.0);
    noise_ = between(0.002, 0.02);
    synced_ = between(0, 1) < 0.5;
    at_fault_ = static_cast<int>(between(0, ranks - 0.01));
  }

  int ranks = 2;
  double delay_us() const { return delay_us_; }
  int at_fault() const { return at_fault_; }

  static constexpr int kWarmUp = 3, kSteps = 6;

  /// What a rank's profiler recorded: from a moment of its host, in steps, to the end of a step. It
  /// sees what the device still does of earlier steps, without its launches, as CUPTI does.
  /// `until`: or it stopped at a moment of its host, whatever the device was still to do.
  struct Recorded {
    double from = kWarmUp;
    int last = kWarmUp + kSteps - 1;
    std::optional<double> until = {};
  };

  /// Files of all ranks. `recorded`: by rank; those beyond have every step.
  std::vector<std::string> traces(std::vector<Recorded> recorded = {}) const {
    recorded.resize(to_index(ranks));
    std::vector<Activity> all;
    run(true, all);
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < all.size(); ++r)
      texts.push_back(trace_of(static_cast<int>(r), ranks, all[r].recorded(recorded[r])));
    return texts;
  }
  /// Share of the step.
  double truth() const {
    std::vector<Activity> even, faulty;
    return 1 - run(false, even) / run(true, faulty);
  }

 private:
  static constexpr double kClock = 1e6;  // of a trace's first event

  struct Event {
    int step = 0;
    double start = 0;
    std::string text;
    double launched = INFINITY;    // of a device's: by the host
    std::string without_launch{};  // as it is recorded then: nothing but its name is known
    bool mark = false;             // of the step
  };
  /// Of a rank, by step from the first warm-up on.
  struct Activity {
    std::vector<Event> events;
    std::vector<Span> host;  // ns

    double moment(double steps) const {
      const Span& step = host[to_index(static_cast<int>(steps))];
      return 1e-3 * (static_cast<double>(step.start_ns) +
                     (steps - std::floor(steps)) * static_cast<double>(step.length()));
    }
    std::vector<std::string> recorded(const Recorded& r) const {
      const double begin = moment(r.from), end = r.until ? moment(*r.until) : INFINITY;
      std::vector<std::string> texts;
      for (const Event& e : events) {
        if (e.step > r.last || e.start <= begin - 1e-3 || e.start >= end) continue;
        if (e.mark && r.until && e.step == static_cast<int>(*r.until))
          texts.push_back(trace::step(e.step, kClock + e.start, end - e.start));
        else
          texts.push_back(e.launched > begin - 1e-3 ? e.text : e.without_launch);
      }
      return texts;
    }
  };

  struct Rank {
    double host = 0, device = 0, network = 0;
    std::vector<double> done;  // by step: end of its optimizer
  };

  /// Noise does not depend on the fault: with and without it the same.
  double noisy(double us, int rank, int step, int what) const {
    const std::uint64_t key =
        random_key(seed_ + 1, static_cast<std::uint64_t>((step * 64 + rank) * 8192 + what));
    const double sum = random_unit(key, 0) + random_unit(key, 1) + random_unit(key, 2);
    return us * std::exp(noise_ * 2 * (sum - 1.5));  // three uniforms deviate by a half
  }
  bool sleeps(Fault one, Fault all, int rank) const {
    return (fault_ == one && rank == at_fault_) || fault_ == all;
  }

  double run(bool faulty, std::vector<Activity>& activity) const;

  std::uint64_t seed_;
  Fault fault_;
  bool slow_host_;
  int layers_ = 0, buckets_ = 0, at_fault_ = 0;
  bool synced_ = false;  // the host waits for the device after each step (prints the loss)
  double layer_us_ = 0, launch_us_ = 0, transfer_us_ = 0, delay_us_ = 0, noise_ = 0;
};

/// Mean step, from the first kernel of the first recorded step to the end of the last one.
inline double SimulatedJob::run(bool faulty, std::vector<Activity>& activity) const {
  constexpr double kLatency = 5;
  activity.assign(to_index(ranks), {});
  std::vector<Rank> all(activity.size());
  std::vector<double> begin(all.size(), 0);
  long correlation = 0;
  const auto ns = [](double us) { return std::round(us * 1e3) / 1e3; };
  const auto run_kernel = [&](int r, int step, const char* name, double start, double us,
                              double launched, const std::string& args, int stream = 7) {
    activity[to_index(r)].events.push_back(
        {step, start, kernel(name, kClock + start, us, args, stream), launched,
         kernel(name, kClock + start, us, "", stream)});
  };
  const auto host = [&](int r, int step, const char* category, const char* name, double from,
                        double us, const std::string& args = "") {
    const std::string event =
        fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":1,"ts":{:.3f},"dur":{:.3f},)"
                    R"("args":{{{}}}}})",
                    category, name, kClock + from, us, args);
    activity[to_index(r)].events.push_back({step, from, event});
  };
  const auto runtime_call = [&](int r, int step, const char* name, double from, double us) {
    const std::string args = fmt::format(R"("correlation":{})", ++correlation);
    host(r, step, "cuda_runtime", name, from, us, args);
    return args;
  };
  const auto launch = [&](int r, int step, double from, double us) {
    return runtime_call(r, step, "cudaLaunchKernel", from, us);
  };
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    // When its data are ready, its launch, and the launch's mark: by rank and bucket.
    std::vector<std::vector<std::tuple<double, double, std::string>>> asked(all.size());
    std::vector<double> opened(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      Rank& r = all[i];
      const int rank = static_cast<int>(i);
      int what = 0;
      opened[i] = r.host = ns(r.host);
      const auto pause = [&](bool applies) {
        const double us = faulty && applies ? noisy(delay_us_, rank, step, 5000) : 0;
        r.host += us;
        return us;
      };
      if (fault_ == Fault::loader) {
        const double from = r.host, us = pause(true);
        host(rank, step, "user_annotation", "enumerate(DataLoader)#_Iter.__next__", from, us);
      }
      pause(sleeps(Fault::late_rank, Fault::shared_pause, rank));
      const auto work = [&](const char* op, double us) {
        const bool slow = slow_host_ && rank == at_fault_;
        const double from = r.host;
        const double call = noisy(slow ? 1.2 * us : launch_us_, rank, step, ++what);
        // At most a step ahead: the queue of launches is full.
        const double room = step >= 2 ? r.done[to_index(step - 2)] : 0;
        r.host = std::max(from + call, room);
        host(rank, step, "cpu_op", op, from, r.host - from);
        const std::string args = launch(rank, step, from + call / 2, r.host - from - call / 2);
        const double start = std::max(r.host + kLatency, r.device);
        r.device = ns(start + noisy(us, rank, step, ++what));
        run_kernel(rank, step, "gemm", ns(start), r.device - ns(start), from + call / 2, args);
        if (begin[i] == 0 && step == kWarmUp) begin[i] = start;
      };
      for (int l = 0; l < layers_; ++l) {
        const bool slow = faulty && fault_ == Fault::slow_device && rank == at_fault_;
        work("aten::addmm", layer_us_ + (slow ? delay_us_ / layers_ : 0));
      }
      for (int l = 0; l < layers_; ++l) {
        const double from = r.host;
        if (l == layers_ / 2)
          pause(sleeps(Fault::late_in_backward, Fault::pause_in_backward, rank));
        work("aten::mm", 2 * layer_us_);
        r.host += 1;  // the node ends after its operator
        host(rank, step, "cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", from,
             r.host - from);
        if ((l + 1) * buckets_ / layers_ > l * buckets_ / layers_) {
          const double at = std::max(r.host + kLatency, r.device);
          asked[i].emplace_back(at, r.host, launch(rank, step, r.host, 1));
          r.host += 2;
        }
      }
    }
    for (int b = 0; b < buckets_; ++b) {
      const std::size_t bucket = to_index(b);
      double met = 0;
      for (std::size_t i = 0; i < all.size(); ++i)
        met = std::max({met, std::get<0>(asked[i][bucket]), all[i].network});
      // The remedy is a network that takes no time.
      const double slower = fault_ != Fault::slow_network ? 1 : faulty ? 3 : 0;
      const double end = ns(met + noisy(transfer_us_ * slower, 0, step, 4000 + b));
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& [at, launched, mark] = asked[i][bucket];
        const double from = ns(std::max(at, all[i].network));
        run_kernel(static_cast<int>(i), step,
                   "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", from, end - from,
                   launched, collective("allreduce", 100'000 + b, ranks) + "," + mark, 20);
        all[i].network = end;
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      Rank& r = all[i];
      const int rank = static_cast<int>(i);
      const double from = r.host;
      r.host += noisy(launch_us_, rank, step, 3000);
      const std::string args = launch(rank, step, from, r.host - from);
      host(rank, step, "user_annotation", "Optimizer.step#SGD.step", from, r.host - from);
      host(rank, step, "cpu_op", "aten::_foreach_add_", from, r.host - from);
      const double start = std::max({r.host + kLatency, r.device, r.network});
      r.device = ns(start + noisy(layer_us_, rank, step, 3001));
      run_kernel(rank, step, "adam", ns(start), r.device - ns(start), from, args);
      r.done.push_back(r.device);
      if (synced_) {
        runtime_call(rank, step, "cudaStreamSynchronize", r.host, r.device - r.host);
        r.host = r.device;
      }
      activity[i].events.push_back(
          {.step = step,
           .start = opened[i],
           .text = trace::step(step, kClock + opened[i], r.host - opened[i]),
           .mark = true});
      activity[i].host.push_back({std::llround(1e3 * opened[i]), std::llround(1e3 * r.host)});
    }
  }
  double longest = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    longest = std::max(longest, all[i].device - begin[i]);
  return longest / kSteps;
}

}  // namespace linerate::trace
