// Traces of a data-parallel job, made up: what a job of known times and delays would record. Whole
// microseconds, so that every sum in the tests is exact.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trace/kineto_text.hpp"

namespace linerate::trace {

/// kernels: device kernels alone. gpu: with the host's operators and launches. cpu: operators and
/// Gloo's marks.
enum class Recorded { kernels, gpu, cpu };

struct SyntheticJob {
  int ranks = 2, steps = 4;
  std::pair<int, int> skipped = {0, 0};      // steps that are not recorded: from, to
  int exchange_every = 1, update_every = 1;  // only in the last of so many steps
  bool stub = false;                         // the recording ends with a mark in which nothing runs
  long forward_us = 10'000, optimizer_us = 3'000;
  std::vector<long> backward_us = {8'000, 9'000, 7'000};
  std::vector<long> transfer_us = {4'000, 6'000, 5'000};  // one bucket behind each backward
  /// Slot 0: while data is loaded; k: before backward k - 1; then before and behind the optimizer.
  std::function<long(int rank, int step, int slot)> delay_us = [](int, int, int) { return 0L; };

  int before_optimizer() const { return static_cast<int>(backward_us.size()) + 1; }
  int behind_optimizer() const { return before_optimizer() + 1; }

  /// Files of all ranks.
  std::vector<std::string> traces(Recorded how) const;
  /// From the begin of the first step to the end of the last one.
  long length_us() const {
    long end = 0;
    run([&](int, int, long, long to) { end = std::max(end, to); }, {}, {});
    return end;
  }
  /// Of all without these.
  double share_gained_by(const SyntheticJob& other) const {
    return 1 - static_cast<double>(other.length_us()) / static_cast<double>(length_us());
  }

 private:
  bool exchanges(int step) const { return (step + 1) % exchange_every == 0; }
  bool updates(int step) const { return (step + 1) % update_every == 0; }
  bool recorded(int step) const { return step < skipped.first || step >= skipped.second; }
  enum class Work { loading, forward, backward, optimizer };
  using OnStep = std::function<void(int rank, int step, long from, long to)>;
  using OnWork = std::function<void(int rank, Work work, long from, long to)>;
  using OnExchange = std::function<void(int rank, int bucket, long asked, long from, long to)>;
  void run(const OnStep& on_step, const OnWork& on_work, const OnExchange& on_exchange) const;
};

inline void SyntheticJob::run(const OnStep& on_step, const OnWork& on_work,
                              const OnExchange& on_exchange) const {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<long> clock(n, 0);
  for (int step = 0; step < steps; ++step) {
    const std::vector<long> begin = clock;
    std::vector<std::vector<long>> asked(n);
    for (std::size_t r = 0; r < n; ++r) {
      const int rank = static_cast<int>(r);
      const auto work = [&](Work w, long us) {
        if (on_work && us > 0 && recorded(step)) on_work(rank, w, clock[r], clock[r] + us);
        clock[r] += us;
      };
      work(Work::loading, delay_us(rank, step, 0));
      work(Work::forward, forward_us);
      for (std::size_t b = 0; b < backward_us.size(); ++b) {
        clock[r] += delay_us(rank, step, static_cast<int>(b) + 1);
        work(Work::backward, backward_us[b]);
        asked[r].push_back(clock[r]);
      }
    }
    std::vector<long> network(n, 0);  // free again
    for (std::size_t b = 0; b < backward_us.size() && exchanges(step); ++b) {
      std::vector<long> from(n);
      for (std::size_t r = 0; r < n; ++r) from[r] = std::max(asked[r][b], network[r]);
      const long end = *std::max_element(from.begin(), from.end()) + transfer_us[b];
      for (std::size_t r = 0; r < n; ++r) {
        network[r] = end;
        if (on_exchange && recorded(step))
          on_exchange(static_cast<int>(r), static_cast<int>(b), asked[r][b], from[r], end);
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      const int rank = static_cast<int>(r);
      clock[r] = std::max(clock[r], network[r]) + delay_us(rank, step, before_optimizer());
      if (updates(step)) {
        if (on_work && recorded(step))
          on_work(rank, Work::optimizer, clock[r], clock[r] + optimizer_us);
        clock[r] += optimizer_us;
      }
      clock[r] += delay_us(rank, step, behind_optimizer());
      if (recorded(step)) on_step(rank, step, begin[r], clock[r]);
    }
  }
}

inline std::vector<std::string> SyntheticJob::traces(Recorded how) const {
  constexpr long kClock = 1'000'000;
  std::vector<std::vector<std::string>> events(static_cast<std::size_t>(ranks));
  long id = 0;
  const auto add = [&](int rank, const std::string& event) {
    events[static_cast<std::size_t>(rank)].push_back(event);
  };
  const auto at = [](long us) { return static_cast<double>(kClock + us); };
  const auto host = [&](int rank, const char* category, const char* name, long from, long us,
                        const std::string& args = "", int tid = 1) {
    add(rank, host_event(category, name, at(from), static_cast<double>(us), args, tid));
  };
  const auto call = [&](int rank, long from, long us, const char* name = "cudaLaunchKernel") {
    host(rank, "cuda_runtime", name, from, us, correlation(++id));
    return correlation(id);
  };
  const auto device = [&](int rank, const char* name, long from, long to, const std::string& args,
                          int stream = 7) {
    add(rank, kernel(name, at(from), static_cast<double>(to - from), args, stream));
  };
  const auto on_step = [&](int rank, int number, long from, long to) {
    add(rank, step(number, at(from), static_cast<double>(to - from)));
  };
  const auto on_work = [&](int rank, Work work, long from, long to) {
    if (how != Recorded::kernels) {
      if (work == Work::loading)
        host(rank, "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
             from, to - from);
      else if (work == Work::optimizer)
        host(rank, "user_annotation", "Optimizer.step#SGD.step", from, to - from);
      else if (work == Work::backward)
        host(rank, "cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", from,
             to - from);
      if (work == Work::forward || how == Recorded::cpu)
        if (work != Work::loading)
          host(rank, "cpu_op", work == Work::backward ? "aten::mm" : "aten::addmm", from,
               to - from);
    }
    if (how == Recorded::cpu || work == Work::loading) return;
    device(rank, "gemm", from, to, how == Recorded::gpu ? call(rank, from, 0) : "");
  };
  const auto on_exchange = [&](int rank, int bucket, long asked, long from, long to) {
    if (how == Recorded::cpu) {
      host(rank, "cpu_op", "c10d::allreduce_", asked, 0);
      return host(rank, "user_annotation", "gloo:all_reduce", from, to - from,
                  floats(1000 + bucket), 2);
    }
    // The host waits for the device before the optimizer, in a call of the runtime.
    if (how == Recorded::gpu && bucket + 1 == static_cast<int>(backward_us.size()))
      call(rank, asked, to - asked, "cudaStreamSynchronize");
    std::string args = collective("allreduce", 1000 + bucket, ranks);
    if (how == Recorded::gpu) args += "," + call(rank, asked - 2, 0);
    device(rank, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", from, to, args, 20);
  };
  run(on_step, on_work, on_exchange);
  if (stub)
    for (int r = 0; r < ranks; ++r) on_step(r, steps, length_us() + 10, length_us() + 30);
  std::vector<std::string> texts;
  for (int r = 0; r < ranks; ++r)
    texts.push_back(trace_of(r, ranks, events[static_cast<std::size_t>(r)],
                             how == Recorded::cpu ? "gloo" : "nccl"));
  return texts;
}

inline Job job_of(const SyntheticJob& job, Recorded how) { return job_of_ranks(job.traces(how)); }

}  // namespace linerate::trace
