// One line of 1 GB, in a text log and in a trace: read from a real (gzip) file, with bounded
// memory.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <zlib.h>

#include <filesystem>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/trace/load.hpp"

namespace linerate::trace {
namespace {

constexpr std::size_t kLine = 1'000'000'000;

/// Peak resident memory of this process so far.
std::size_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

/// `before`, 1e9 times 'x', `after`; a thousandth of that on disk.
std::filesystem::path write_line(const char* name, const std::string& before,
                                 const std::string& after) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  const gzFile file = gzopen(path.c_str(), "wb1");
  const std::string block(1 << 20, 'x');
  gzwrite(file, before.data(), static_cast<unsigned>(before.size()));
  for (std::size_t left = kLine; left > 0;) {
    const std::size_t n = std::min(left, block.size());
    gzwrite(file, block.data(), static_cast<unsigned>(n));
    left -= n;
  }
  gzwrite(file, after.data(), static_cast<unsigned>(after.size()));
  gzclose(file);
  return path;
}

// In this order: the peak of a process never falls.
TEST(LineOf1GB, InALogIsPassedOverInConstantMemory) {
  const auto path = write_line(
      "long_line.log.gz", "# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)\n",
      "\n1024   10.00\n");
  const bench_logs::CollectiveLog log = bench_logs::load_collective_log(path, {.ranks = 4});
  std::filesystem::remove(path);
  ASSERT_EQ(log.rows.size(), 1u);  // the row behind it
  EXPECT_LT(peak_bytes(), std::size_t{64} << 20);
}

TEST(LineOf1GB, InATraceTakesLessThanTwoAndAHalfTimesItsSize) {
  const auto path =
      write_line("long_line_rank0.json.gz", R"({"traceEvents":[{"ph":"X","cat":"kernel","name":")",
                 R"(","ts":0,"dur":10},{"ph":"X","cat":"kernel","name":"gemm","ts":20,"dur":5}]})");
  const Job job = load_job({path});
  std::filesystem::remove(path);
  EXPECT_EQ(job.ranks.at(0).compute.size(), 2u);
  EXPECT_EQ(job.ranks[0].rank, 0);
  EXPECT_LT(peak_bytes(), kLine * 5 / 2);
}

}  // namespace
}  // namespace linerate::trace
