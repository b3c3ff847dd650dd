// What share of the line rate an all-reduce over MPI reaches, in both directions at once; the sums
// are checked first. One rank prints:   mpirun -n 2 build/release/bench/line_rate --sizes 26.2MB
// --line-rate 1Gbit/s --skew 50ms share = 2 (P-1)/P S / (time from the last rank's start to the
// last end) / line rate.
#include <fmt/format.h>
#include <mpi.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"

using namespace linerate;

namespace {

struct Options {
  std::string sizes = "1MB,4MB,26.2MB,60MB";
  std::string line_rate, link;
  std::string skew = "0s";
  int repeat = 7;
  int mtu = 1500;
  bool busy = false;
  bool plain = false;
  bool json = false;
};

struct Figures {
  double seconds = 0;        // median
  double low = 0, high = 0;  // of all repetitions
  double cpu_seconds = 0;    // of this process, per collective
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Ranks of one host share the steady clock, also across network namespaces.
class Bench {
 public:
  Bench(comm::Communicator& world, const Options& options)
      : world_(world), options_(options), skew_(parse_time(options.skew)) {}

  Figures measure(std::int64_t elements) {
    std::vector<float> data(static_cast<std::size_t>(elements));
    std::vector<double> seconds;
    double cpu = 0;
    for (int k = -1; k < options_.repeat; ++k) {  // -1: warm-up
      std::fill(data.begin(), data.end(), static_cast<float>(world_.rank() + 1));
      world_.barrier("start")->wait();
      std::this_thread::sleep_for(delay(k));
      const double cpu_before = cpu_seconds();
      std::int64_t start = steady_ns();
      world_.all_reduce(comm::buffer(data), comm::Reduce::sum, "x")->wait();
      std::int64_t end = steady_ns();
      const double cpu_used = cpu_seconds() - cpu_before;
      check(data);
      world_.all_reduce(comm::buffer(start), comm::Reduce::max, "start")->wait();
      world_.all_reduce(comm::buffer(end), comm::Reduce::max, "end")->wait();
      if (k < 0) continue;
      seconds.push_back(static_cast<double>(end - start) * 1e-9);
      cpu += cpu_used / options_.repeat;
    }
    const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
    return {median(seconds), *low, *high, cpu};
  }

 private:
  /// The ranks' starts are spread over the skew; who comes last changes from repetition to
  /// repetition.
  std::chrono::duration<double> delay(int repetition) const {
    if (world_.size() == 1) return std::chrono::duration<double>(0);
    const int place = (world_.rank() + repetition + 1) % world_.size();
    return std::chrono::duration<double>(skew_.value * place / (world_.size() - 1));
  }
  void check(const std::vector<float>& data) const {
    const auto want = static_cast<float>(world_.size() * (world_.size() + 1) / 2);
    for (const float x : data) {
      if (x != want) throw CommError(fmt::format("wrong sum: expected {}, found {}", want, x));
    }
  }

  comm::Communicator& world_;
  const Options& options_;
  Seconds skew_;
};

/// A thread that computes all the time, as training does beside the exchange. Started and stopped
/// with its life.
class Compute {
 private:
  void loop(const std::stop_token& stop) {
    std::vector<float> x(64 << 10, 1.0f);
    while (!stop.stop_requested()) {
      for (float& v : x) v = v * 0.999f + 0.001f;
      ++rounds_;
    }
    if (x[0] > 2) ++rounds_;  // keeps the loop
  }
  std::atomic<std::int64_t> rounds_{0};
  std::jthread thread_{[this](const std::stop_token& stop) { loop(stop); }};
};

/// MPI's own all-reduce on this thread, and one pass of memcpy, for comparison.
double plain_all_reduce(std::int64_t elements, int repeat) {
  std::vector<float> data(static_cast<std::size_t>(elements), 1.0f);
  std::vector<double> seconds;
  for (int k = -1; k < repeat; ++k) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    double elapsed = MPI_Wtime() - start;
    MPI_Allreduce(MPI_IN_PLACE, &elapsed, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (k >= 0) seconds.push_back(elapsed);
  }
  return median(seconds);
}

double copy_once(std::int64_t elements, int repeat) {
  std::vector<float> from(static_cast<std::size_t>(elements), 1.0f), to(from.size());
  std::vector<double> seconds;
  for (int k = -1; k < repeat; ++k) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    std::memcpy(to.data(), from.data(), to.size() * sizeof(float));
    if (k >= 0) seconds.push_back(MPI_Wtime() - start);
  }
  return median(seconds);
}

struct Row {
  std::int64_t bytes;
  Figures own;
  std::optional<double> plain_s, copy_s, payload_share, wire_share;
};

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (const std::string& one : split_outside_parentheses(text, ',')) {
    sizes.push_back(parse_size(one).value / 4 * 4);
  }
  return sizes;
}

void print_table(const std::vector<Row>& rows, int ranks) {
  fmt::print(
      "all-reduce, f32 sum, {} ranks\n{:>10} {:>10} {:>21} {:>14} {:>9} {:>9} {:>11} {:>8}\n",
      ranks, "size", "median", "lowest .. highest", "CPU/byte", "payload", "on wire", "MPI's own",
      "memcpy");
  const auto share = [](std::optional<double> x) {
    return x ? fmt::format("{:.1f} %", *x * 100) : std::string("-");
  };
  const auto ratio = [](std::optional<double> x, double own) {
    return x ? fmt::format("x {:.2f}", own / *x) : std::string("-");
  };
  for (const Row& row : rows) {
    const auto bytes = static_cast<double>(row.bytes);
    fmt::print("{:>10} {:>10} {:>21} {:>11.3f} ns {:>9} {:>9} {:>11} {:>8}\n", format_size(bytes),
               format_time(row.own.seconds),
               fmt::format("{} .. {}", format_time(row.own.low), format_time(row.own.high)),
               row.own.cpu_seconds / bytes * 1e9, share(row.payload_share), share(row.wire_share),
               ratio(row.plain_s, row.own.seconds), ratio(row.copy_s, row.own.seconds));
  }
}

void print_json(const std::vector<Row>& rows, int ranks, const Options& options) {
  nlohmann::json out = {{"ranks", ranks}, {"skew_s", parse_time(options.skew).value}};
  if (!options.line_rate.empty()) {
    out["line_rate_bytes_per_s"] = parse_rate(options.line_rate).value;
  }
  for (const Row& row : rows) {
    nlohmann::json one = {{"bytes", row.bytes},
                          {"seconds", row.own.seconds},
                          {"low_s", row.own.low},
                          {"high_s", row.own.high},
                          {"cpu_s", row.own.cpu_seconds}};
    if (row.payload_share) one["payload_share"] = *row.payload_share;
    if (row.wire_share) one["wire_share"] = *row.wire_share;
    if (row.plain_s) one["mpi_allreduce_s"] = *row.plain_s;
    if (row.copy_s) one["memcpy_s"] = *row.copy_s;
    out["sizes"].push_back(one);
  }
  fmt::print("{}\n", out.dump(2));
}

void run(const Options& options) {
  std::vector<Row> rows;
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  for (const std::int64_t bytes : parse_sizes(options.sizes)) {
    rows.push_back({bytes, {}, {}, {}, {}, {}});
    if (!options.plain) continue;
    rows.back().plain_s = plain_all_reduce(bytes / 4, options.repeat);
    rows.back().copy_s = copy_once(bytes / 4, options.repeat);
  }
  if (!options.link.empty()) comm::set_link(parse_rate(options.link));
  const auto world = comm::make_world({.timeout = Duration{120}});
  Bench bench(*world, options);
  std::optional<Compute> compute;
  if (options.busy) compute.emplace();
  const double ranks = world->size();
  for (Row& row : rows) {
    row.own = bench.measure(row.bytes / 4);
    if (options.line_rate.empty()) continue;
    const double sent = 2 * (ranks - 1) / ranks * static_cast<double>(row.bytes);
    row.payload_share = sent / row.own.seconds / parse_rate(options.line_rate).value;
    // A full frame holds mtu - 52 bytes of payload (IPv4, TCP, its timestamps) and counts mtu + 14
    // on the link.
    row.wire_share = *row.payload_share * (options.mtu + 14) / (options.mtu - 52);
  }
  if (world->rank() != 0) return;
  if (options.json) return print_json(rows, world->size(), options);
  print_table(rows, world->size());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Share of the line rate that an all-reduce over MPI reaches", "line_rate"};
  app.add_option("--sizes", options.sizes, "Sizes of the array, with units")->capture_default_str();
  app.add_option("--line-rate", options.line_rate, "Of the link, per direction, such as 1Gbit/s");
  app.add_option("--link", options.link, "Send as over a link of this rate: needs no tools/lab");
  app.add_option("--skew", options.skew, "Ranks start spread over this time")
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "Timed repetitions")->capture_default_str();
  app.add_option("--mtu", options.mtu, "Of the link, for the share with headers")
      ->capture_default_str();
  app.add_flag("--busy", options.busy, "A compute thread beside every rank");
  app.add_flag("--plain", options.plain, "Also time MPI_Allreduce and one memcpy");
  app.add_flag("--json", options.json, "Print JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
    MPI_Finalize();
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
}
