#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/explain/explanation.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Decimal, KeepsEveryDigitOfAnEpochMicrosecond) {
  // 1734001122334455.678 us needs 61 bits in ns; a double would round to .75.
  EXPECT_EQ(parse_us_as_ns("1734001122334455.678"), 1734001122334455678);
  EXPECT_EQ(parse_us_as_ns("1.734001122334455e+15"), 1734001122334455000);
  EXPECT_EQ(parse_us_as_ns("\"12.5\""), 12500);
  EXPECT_EQ(parse_us_as_ns("8.000\n  "), 8000);
  EXPECT_EQ(parse_us_as_ns("9223372036854775.807"), INT64_MAX);
  EXPECT_EQ(parse_us_as_ns("0.1234"), 123);
  EXPECT_FALSE(parse_us_as_ns("."));
  EXPECT_EQ(parse_us_as_ns("-0.0015"), -2);  // half away from zero
  EXPECT_FALSE(parse_us_as_ns("99999999999999999999"));
  EXPECT_FALSE(parse_us_as_ns("12abc"));
  EXPECT_EQ(parse_whole("9223372036854775807"), INT64_MAX);
  EXPECT_FALSE(parse_whole("9223372036854775808"));
  EXPECT_EQ(parse_whole("1.00000000000000000000001"), 1);
  EXPECT_EQ(parse_unsigned("18446744073709551615"), 18446744073709551615ull);
}

TEST(Kineto, EveryEraOfNamesGivesTheSameNumbers) {
  const auto event = [](const char* cat, const char* name, int ts, int dur) {
    return fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":0,"tid":"7","ts":{},"dur":{}}})",
                       cat, name, ts, dur);
  };
  for (const char* nccl :
       {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclDevKernel_Generic(void*)",
        "nccldevkernel_AllReduce", "ncclSymkDevKernel_AllReduce_RSxLD_AGxST",
        "mscclKernel_Sum_float", "rcclGenericKernel", "nccl::all_reduce_kernel"}) {
    for (const char* cat : {"kernel", "Kernel"}) {
      const Breakdown b = break_down(
          job_from(trace_of(0, 2, {event(cat, "sgemm", 0, 10), event(cat, nccl, 5, 10)})));
      EXPECT_NEAR(b.whole.communication_s, 10e-6, 1e-12) << nccl;
      EXPECT_NEAR(b.whole.overlap_s, 5e-6, 1e-12) << nccl;
      EXPECT_FALSE(b.collective_bytes.has_value());  // unknown is null
    }
  }
}

TEST(RankName, IsFoundInFileNames) {
  for (const char* name :
       {"rank-3.json", "a/rank3_trace.json", "job_RANK_3.pt", "worker3.1700.pt.trace.json.gz"})
    EXPECT_EQ(rank_in_name(name), 3) << name;
  EXPECT_EQ(rank_in_name("ranking.json"), -1);
}

std::string thirty() {
  std::string list = "[0";
  for (int i = 1; i < 30; ++i) list += ", " + std::to_string(i);
  return list;
}

ResolvedGroup resolved(const GroupRecord& g, const std::vector<ConfiguredGroup>& c = {},
                       int world = -1) {
  return resolve_groups({g}, c, world).front();
}

TEST(NumberList, NoticesWhatWasCutAtTheEndOrInTheMiddle) {
  EXPECT_THAT(parse_number_list("\"[0, 1]\"")->items, ElementsAre(0, 1));
  EXPECT_FALSE(parse_number_list("[0, 1]")->cut);
  EXPECT_THAT(parse_number_list("[]")->items, IsEmpty());
  EXPECT_TRUE(parse_number_list(thirty() + ", ...]")->cut);
  EXPECT_TRUE(parse_number_list("[0, 1, ..., 63]")->cut);
  EXPECT_FALSE(parse_number_list("0, 1"));
  EXPECT_FALSE(parse_number_list("[a]"));
}

TEST(ProcessGroup, IsRebuiltFromStartStrideAndSize) {
  const ResolvedGroup g =
      resolved({.name = "tp", .ranks = "[1, 3, 5, 7]", .start = 1, .stride = 2, .size = 4});
  EXPECT_THAT(g.ranks, ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(g.text, "tp (ranks 1..7 by 2)");
  // Start -1 stands for a group without a stride: the list is what there is.
  EXPECT_THAT(resolved({.name = "x", .ranks = "[0, 3, 4]", .start = -1, .size = 3}).ranks,
              ElementsAre(0, 3, 4));
}

TEST(ProcessGroup, IsNeverTakenFromACutList) {
  const GroupRecord cut{.name = "7", .ranks = thirty() + ", ...]", .size = 64};
  EXPECT_THAT(resolved(cut).ranks, IsEmpty());
  EXPECT_EQ(resolved(cut, {}, 64).ranks.size(), 64u);  // the whole job
  EXPECT_THAT(resolved(cut, {}, 128).ranks, IsEmpty());
  const auto configured =
      parse_configured_groups(R"([{"pg_name": "7", "pg_size": 3, "ranks": "[0, 2, 9]"}])");
  EXPECT_THAT(resolved({.name = "7", .ranks = cut.ranks, .size = 3}, configured).ranks,
              ElementsAre(0, 2, 9));
}

TEST(ProcessGroup, OfAKernelComesFromTheOperationWithTheSameCutList) {
  const std::string list = thirty() + ", ...]";
  const auto groups =
      resolve_groups({{.name = "7", .ranks = list, .size = 32},
                      {.name = "7", .ranks = list, .start = 0, .stride = 1, .size = 32}},
                     {}, 64);
  EXPECT_EQ(groups[0].text, "7 (ranks 0..31)");
  EXPECT_EQ(groups[0].text, groups[1].text);
}

TEST(ProcessGroup, ConfigurationsOfEveryEraAreRead) {
  const auto groups = parse_configured_groups(
      R"([{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]},
          {"uid": "1", "pg_size": 2, "ranks": "[0, 1]"}, {"uid": 2, "pg_size": 2, "ranks": [1, 2, 3]}, 5])");
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(groups[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(groups[1].ranks, ElementsAre(0, 1));
  EXPECT_EQ(groups[2].name, "2");
  EXPECT_THAT(groups[2].ranks, IsEmpty());  // three ranks contradict the size of two
  EXPECT_THAT(parse_configured_groups("not JSON"), IsEmpty());
}

TEST(ProcessGroup, AbsurdSizesTakeNoMemory) {
  EXPECT_THAT(resolved({.name = "x", .ranks = "", .start = 0, .stride = 1, .size = 1 << 30}).ranks,
              IsEmpty());
}

}  // namespace
}  // namespace linerate::trace
