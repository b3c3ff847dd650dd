// bench/import [megabytes]: a Kineto-like trace of known content is parsed and explained; the
// content is checked first. Prints parse MB/s on one core (best of five), its ratio to memcpy, and
// the time of explain from file to verdict.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "figures.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/load.hpp"

using namespace linerate;

namespace {

using bench::seconds_of;

double best_of_five(auto&& work) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) best = std::min(best, seconds_of(work));
  return best;
}

struct Made {
  std::string text;
  long kernels = 0, all_reduces = 0;
  double compute_us = 0, communication_us = 0;
};

/// The mix of a real trace: of 12 events one kernel, one launch, four operators, five flow arrows,
/// and the rest. A kernel lasts 8 us every 12 us, every 40th is an all-reduce; none overlap, so
/// that busy times are sums.
Made make_trace(std::size_t bytes) {
  Made m;
  std::string& t = m.text;
  t.reserve(bytes + 4096);
  t = R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},)"
      R"("traceEvents": [)";
  const std::string kernel_name(180, 'k');
  long i = 0;
  for (; t.size() < bytes; ++i) {
    const double ts = 1734001122000000.0 + 12.0 * static_cast<double>(i);
    const bool communication = i % 40 == 39;
    for (int op = 0; op < 4; ++op)
      t += fmt::format(
          "\n  {{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add_{}\", \"pid\": "
          "4242, \"tid\": 4242,\n"
          "    \"ts\": {:.3f}, \"dur\": {:.3f},\n    \"args\": {{\n      \"External id\": "
          "{},\"Record function id\": 0, "
          "\"Concrete Inputs\": [\"\", \"\", \"1\"], \"Input type\": [\"float\", \"float\", "
          "\"Scalar\"], "
          "\"Input Dims\": [[32, 256, 56, 56], [32, 256, 56, 56], []], \"Ev Idx\": {}\n    }}\n  "
          "}},",
          op, ts + op * 0.5, 0.375, 4 * i + op, 4 * i + op);
    t += fmt::format(
        "\n  {{\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", "
        "\"pid\": 4242, \"tid\": 4242,\n"
        "    \"ts\": {:.3f}, \"dur\": 1.250,\n    \"args\": {{\n      \"External id\": {}, "
        "\"cbid\": 211, \"correlation\": {}\n    }}\n  }},",
        ts + 2, i, i + 1);
    t += fmt::format(
        "\n  {{\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{}\", \"pid\": 0, \"tid\": "
        "7,\n    \"ts\": {:.3f}, \"dur\": 8.000,\n"
        "    \"args\": {{\n      \"External id\": {}, \"queued\": 0, \"device\": 0, \"context\": "
        "1, \"stream\": 7, \"correlation\": {}, "
        "\"registers per thread\": 32, \"blocks per SM\": 5.300000, \"grid\": [4, 106, 1], "
        "\"block\": [128, 1, 1]\n    }}\n  }},",
        communication ? "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                      : kernel_name,
        ts + 3, i, i + 1);
    for (int flow = 0; flow < 5; ++flow)
      t += fmt::format(
          "\n  {{\n    \"ph\": \"{}\", \"id\": {}, \"pid\": 4242, \"tid\": 4242, \"ts\": {:.3f},\n "
          "   \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  }},",
          flow % 2 ? "f" : "s", i, ts);
    ++(communication ? m.all_reduces : m.kernels);
    (communication ? m.communication_us : m.compute_us) += 8;
  }
  t += fmt::format(
      "\n  {{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#1\", \"pid\": "
      "4242, \"tid\": 4242, "
      "\"ts\": 1734001122000000.000, \"dur\": {:.3f}}}\n]}}\n",
      12.0 * static_cast<double>(i));
  return m;
}

void check(bool holds, const char* what) {
  if (holds) return;
  fmt::print(stderr, "wrong result: {}\n", what);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const auto megabytes = static_cast<std::size_t>(argc > 1 ? std::atol(argv[1]) : 53);
  const Made made = make_trace(megabytes * 1'000'000);
  const auto file = std::filesystem::temp_directory_path() /
                    fmt::format("linerate-import-{}.json", static_cast<long>(std::rand()));
  std::ofstream(file, std::ios::binary) << made.text;

  const trace::Job job = trace::load_job({file});
  const trace::Breakdown b = trace::break_down(job);
  check(job.ranks.at(0).compute.size() == static_cast<std::size_t>(made.kernels), "kernels");
  check(job.ranks.at(0).communications.size() == static_cast<std::size_t>(made.all_reduces),
        "all-reduces");
  check(std::abs(b.whole.compute_s - made.compute_us * 1e-6) < 1e-9, "compute busy");
  check(std::abs(b.whole.communication_s - made.communication_us * 1e-6) < 1e-9,
        "communication busy");

  std::string copy(made.text.size(), 0);
  const double copying =
      best_of_five([&] { std::memcpy(copy.data(), made.text.data(), copy.size()); });
  double parsing = 1e9;
  for (int i = 0; i < 5; ++i) {
    trace::InputFile input = trace::InputFile::from_memory(made.text, "bench");
    parsing = std::min(parsing,
                       seconds_of([&] { check(!trace::read_job(input).ranks.empty(), "ranks"); }));
  }
  const double explaining = best_of_five([&] {
    const trace::Breakdown again = trace::break_down(trace::load_job({file}));
    check(!trace::explain_json(again, trace::judge(again)).empty(), "JSON");
  });
  std::filesystem::remove(file);
  const double mb = static_cast<double>(made.text.size()) * 1e-6;
  fmt::print("trace                {:.1f} MB, {} kernels, {} all-reduces (content checked)\n", mb,
             made.kernels, made.all_reduces);
  fmt::print("memcpy               {:.0f} MB/s\n", mb / copying);
  fmt::print("parse, one core      {:.0f} MB/s ({:.1f} ms; memcpy is {:.1f} times as fast)\n",
             mb / parsing, parsing * 1e3, parsing / copying);
  fmt::print("explain, from file   {:.0f} ms\n", explaining * 1e3);
  return 0;
}
