// Chooses a reader by the first bytes of a log. The order of kFormats matters. nccl-tests' own
// columns with commas are a table, and the reader of text comes last, because its rows may be
// anywhere. Benchmarks that are known and not read are refused by name. Whatever remains is tried
// as a table without a header, and then as text whose head is full of debug output.
#include "linerate/bench_logs/collective_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/error.hpp"

namespace linerate::bench_logs {
namespace {

struct LogFormat {
  bool (*matches)(std::string_view head);
  CollectiveLog (*read)(trace::InputFile&, const CollectiveLogOptions&);
};

/// The first that matches reads.
constexpr std::array kFormats = {LogFormat{is_nccl_tests_json, read_nccl_tests_json},
                                 LogFormat{is_rccl_tests_json, read_rccl_tests_json},
                                 LogFormat{is_collective_table, read_collective_table},
                                 LogFormat{is_hccl_demo, read_collective_table},
                                 LogFormat{is_deepspeed, read_deepspeed},
                                 LogFormat{is_osu, read_osu},
                                 LogFormat{is_nccl_tests, read_nccl_tests}};

/// Benchmarks that are not read, and the words by which their output is known.
struct OtherBenchmark {
  std::string_view name, mark;
};
constexpr std::array kOtherBenchmarks = {
    OtherBenchmark{"Intel MPI Benchmarks", "Intel(R) MPI Benchmarks"},
    OtherBenchmark{"Intel MPI Benchmarks", "Intel (R) MPI Benchmarks"},
    OtherBenchmark{"Intel MPI Benchmarks", "IMB-MPI1"},
    OtherBenchmark{"Intel MPI Benchmarks or oneCCL's benchmark", "#repetitions"},
    OtherBenchmark{"perftest (ib_write_bw and its kin)", "#iterations"},
    OtherBenchmark{"perftest (ib_write_bw and its kin)", "RDMA_Write BW Test"},
    OtherBenchmark{"UCC's perftest", "Memory type:"},
    OtherBenchmark{"nvbandwidth", "nvbandwidth Version"},
    OtherBenchmark{"p2pBandwidthLatencyTest", "P2P Connectivity Matrix"},
    OtherBenchmark{"DeepSpeed's communication benchmarks", "---- Performance of "},
    OtherBenchmark{"hccl_demo", "hccl_demo"},
    OtherBenchmark{"PARAM's communication benchmark", "COMMS-RES"},
    OtherBenchmark{"iperf", "[ ID] Interval"},
};

const LogFormat* format_of_log(std::string_view head) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(),
                                  [head](const LogFormat& f) { return f.matches(head); });
  return found == kFormats.end() ? nullptr : found;
}

void refuse_by_name(const trace::InputFile& input, std::string_view head) {
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff"))
    throw InputError(input.name(),
                     "expected text in UTF-8, found UTF-16, as PowerShell writes it; convert it "
                     "with: iconv -f UTF-16 -t UTF-8");
  for (const OtherBenchmark& other : kOtherBenchmarks)
    if (head.find(other.mark) != std::string_view::npos)
      throw InputError(
          input.name(),
          fmt::format("output of {} is not read; expected a log of nccl-tests or OSU "
                      "micro-benchmarks, or its times as a table bytes,seconds,ranks,collective, "
                      "with the bytes of the whole array",
                      other.name));
}

/// In quotes, for a message.
std::string first_line_of(std::string_view head) {
  for (; !head.empty(); head.remove_prefix(std::min(head.find('\n'), head.size() - 1) + 1))
    if (const std::string line = shortened(head.substr(0, head.find('\n'))); !line.empty())
      return "\"" + line + "\"";
  return "missing";
}

/// Tries the formats from the surest sign to the weakest. The last try reads the whole file as
/// nccl-tests' text, and gives the message about what was expected if that finds no row.
CollectiveLog read_any(trace::InputFile& input, const CollectiveLogOptions& options) {
  if (const LogFormat* format = format_of_log(input.head())) return format->read(input, options);
  refuse_by_name(input, input.head());
  if (is_plain_table(input.head())) return read_collective_table(input, options);
  const std::string first = first_line_of(input.head());
  // Debug output of NCCL may fill the head before the first header.
  CollectiveLog log = read_nccl_tests(input, options);
  if (log.rows.empty())
    throw InputError(
        input.name(),
        fmt::format("expected a log of nccl-tests (text or JSON) or OSU micro-benchmarks, or a "
                    "table with a header such as bytes,time_us,ranks,collective; found none of "
                    "their headers; the first line is {}",
                    first));
  return log;
}

}  // namespace

bool is_collective_log(std::string_view head) { return format_of_log(head) != nullptr; }

CollectiveLog read_collective_log(trace::InputFile& input, const CollectiveLogOptions& options) {
  try {
    CollectiveLog log = read_any(input, options);
    if (log.rows.empty())
      throw InputError(input.name(), fmt::format("the {} log holds no row with a size and a time; "
                                                 "give the whole output of the benchmark",
                                                 log.format));
    if (input.truncated()) log.note("the gzip stream ends early; rows up to there were read");
    return log;
  } catch (const InputError& e) {
    input.rethrow_with_cause(e.what());
  }
}

CollectiveLog load_collective_log(const std::filesystem::path& path,
                                  const CollectiveLogOptions& options) {
  trace::InputFile input = trace::InputFile::open(path);
  return read_collective_log(input, options);
}

}  // namespace linerate::bench_logs
