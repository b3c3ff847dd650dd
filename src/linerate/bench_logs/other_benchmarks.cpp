#include "linerate/bench_logs/other_benchmarks.hpp"

#include <algorithm>
#include <array>

namespace linerate::bench_logs {
namespace {

struct Benchmark {
  std::string_view name, mark;
};

constexpr std::array kBenchmarks = {
    Benchmark{"Intel MPI Benchmarks", "Intel(R) MPI Benchmarks"},
    Benchmark{"Intel MPI Benchmarks", "Intel (R) MPI Benchmarks"},
    Benchmark{"Intel MPI Benchmarks", "IMB-MPI1"},
    Benchmark{"Intel MPI Benchmarks or oneCCL's benchmark", "#repetitions"},
    Benchmark{"perftest (ib_write_bw and its kin)", "#iterations"},
    Benchmark{"perftest (ib_write_bw and its kin)", "RDMA_Write BW Test"},
    Benchmark{"UCC's perftest", "Memory type:"},
    Benchmark{"nvbandwidth", "nvbandwidth Version"},
    Benchmark{"p2pBandwidthLatencyTest", "P2P Connectivity Matrix"},
    Benchmark{"DeepSpeed's communication benchmarks", "---- Performance of "},
    Benchmark{"PARAM's communication benchmark", "COMMS-RES"},
    Benchmark{"iperf", "[ ID] Interval"},
};

}  // namespace

std::string_view other_benchmark(std::string_view head) {
  const auto* found = std::find_if(
      kBenchmarks.begin(), kBenchmarks.end(),
      [head](const Benchmark& b) { return head.find(b.mark) != std::string_view::npos; });
  return found == kBenchmarks.end() ? std::string_view() : found->name;
}

}  // namespace linerate::bench_logs
