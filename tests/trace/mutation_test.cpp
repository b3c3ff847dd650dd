// Mutates the samples and fixtures and feeds them to the importers: no crash, no hang, no silent
// zero.
//   test_unit_trace_mutation [inputs] [seconds]      defaults: 3000 inputs, 60 s
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "linerate/core/file.hpp"
#include "linerate/core/rng.hpp"
#include "trace/feed_importer.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using Clock = std::chrono::steady_clock;

/// Pieces of every format; files are cut to windows, so that an input costs microseconds and every
/// part is reached.
std::vector<std::string> seeds() {
  std::vector<std::string> all;
  all.push_back(trace_of(
      0, 2,
      {step(0, 0, 100), kernel("gemm", 0, 40),
       kernel("ncclDevKernel_AllReduce", 20, 50,
              collective("allreduce", 10, 2, R"("Seq":1,"Comms Id":18446744073709551615)")),
       R"({"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":0,"dur":1,"args":{"External id":5,"Collective name":"wait","In msg nelems":0}})",
       R"({"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":1,"tid":9,"ts":0,"dur":10,"args":{"Input Dims":[[4096]],"Input type":["float"]}})",
       R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":9,"ts":4,"dur":1,"args":{"correlation":5}})"}));
  all.push_back(
      R"([{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":2000,"pid":7},{"ph":"X","name":"1","ts":2310,"pid":7,"dur":0},{"ph":"E","ts":2312,"pid":7},{"ph":"B","name":"ALLREDUCE","ts":2315,"pid":7},{"ph":"B","name":"NCCL_ALLREDUCE","ts":2350,"pid":7},{"ph":"E","ts":2790,"pid":7},{"ph":"E","ts":2796,"pid":7,"args":{"dtype":"float32","shape":"[512, 512]"}},)");
  all.push_back(
      "# nThread 1 nGpus 2\n#  Rank  0 Pid 1 on h device 0\n#  Rank  1 Pid 1 on h device 1\n#  "
      "size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n "
      "1048576  262144  float  sum  -1  20.00  52.43  52.43  0  21.00  49.93  49.93  0\n");
  all.push_back(
      R"({"version":"2.17","nccl_version":1,"results":[{"size":1024,"count":256,"type":"float","redop":"sum","root":" -1","out_of_place":{"time":12.5,"alg_bw":2,"bus_bw":2},"in_place":null}]})");
  all.push_back(
      "# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)\n4    2.10\n8   2.2\n");
  all.push_back(
      "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/"
      "s)\n1048576,262144,float,51400,30.60,52740,29.82\n");
  all.push_back("prose\n1\n2\n10.5,400\n20,8\n");
  all.push_back(
      R"({"schema":"1.0.2","nodes":[{"id":3,"name":"record_param_comms","inputs":{"values":[[[[9,8,0,64,4,"cuda:0"]]],1,["0","d"],0,"allreduce",[],[],0,1,2]},"attrs":[]}]})");
  all.push_back(
      R"({"workload_graph":[{"Id":1,"Name":"k","NodeType":7,"runtime":7,"is_cpu_op":false,"comm_type":0,"comm_size":64}]})");
  all.push_back(
      std::string("\x07\x0a\x05"
                  "0.0.4"
                  "\x12\x12\x04"
                  "ncclKerne"
                  "\x18\x07\x30\x64\x38\x05",
                  25));
  for (const std::filesystem::path folder :
       {"tests/trace/fixtures", "../shared/data/kineto", "../shared/data/per_gradient",
        "../shared/data/collectives", "../shared/data/chakra"}) {
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
      Input input = Input::open(entry.path());
      const std::string text(input.read_all().view());
      all.push_back(text.substr(0, 6000));
      all.push_back(text.substr(text.size() / 2, 6000));
      all.push_back(
          "{\"traceEvents\": [" +
          text.substr(std::min(text.size(), text.find("\"ph\"", text.size() / 2) - 1), 5000));
      all.push_back(read_file(entry.path()).substr(0, 3000));  // truncated gzip
    }
  }
  return all;
}

/// One to eight edits: a byte, a run, a digit, a number that is absurd, a piece moved or doubled,
/// the tail cut.
std::string mutated(std::string s, std::uint64_t key) {
  std::uint64_t n = 0;
  const auto below = [&](std::uint64_t k) {
    return random_below(key, n++, std::max<std::uint64_t>(1, k));
  };
  static const char* const kPieces[] = {"\"",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\n",
                                        "\\",
                                        "-1",
                                        "1e400",
                                        "18446744073709551616",
                                        "null",
                                        "\xff\xfe",
                                        "NaN",
                                        "\"ph\":\"X\"",
                                        "9223372036854775808",
                                        "0",
                                        "[[[[[[[[",
                                        "# ",
                                        "\x1f\x8b",
                                        "\x01"};
  for (std::uint64_t edits = 1 + below(8); edits > 0; --edits) {
    if (s.empty()) return s;
    const std::size_t at = below(s.size());
    switch (below(7)) {
      case 0:
        s[at] = static_cast<char>(below(256));
        break;
      case 1:
        s.erase(at, below(64));
        break;
      case 2:
        s.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        s.insert(at, s.substr(below(s.size()), below(200)));
        break;
      case 4:
        s.resize(below(s.size()) + 1);
        break;
      case 5: {
        const std::size_t digit = s.find_first_of("0123456789", at);
        if (digit != std::string::npos) s.replace(digit, 1, kPieces[below(std::size(kPieces))]);
        break;
      }
      default:
        s[at] ^= static_cast<char>(1 << below(8));
    }
  }
  return s;
}

}  // namespace
}  // namespace linerate::trace

int main(int argc, char** argv) {
  using namespace linerate::trace;
  const long wanted = argc > 1 ? std::atol(argv[1]) : 3000;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 60;
  const std::vector<std::string> all = seeds();
  const auto begun = Clock::now();
  long read = 0, done = 0;
  double slowest = 0;
  for (; done < wanted; ++done) {
    const auto before = Clock::now();
    if (std::chrono::duration<double>(before - begun).count() > seconds) break;
    const auto i = static_cast<std::uint64_t>(done);
    read += feed_importer(mutated(all[i % all.size()], i + 1));
    slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - before).count());
  }
  std::printf(
      "%ld mutated inputs of %zu seeds: %ld read, %ld refused with a message; slowest %.1f ms\n",
      done, all.size(), read, done - read, slowest * 1e3);
  return done > 0 && read > 0 && done > read ? 0 : 1;
}
