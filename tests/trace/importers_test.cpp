#include "linerate/trace/importers.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/text.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "trace/importer_seeds.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The importer that a file with this text is given to.
std::string_view importer_of(std::string_view text) { return recognise(text).importer->name; }

TEST(Importers, EachHasASeed) {
  // What has none is neither recognised by the tests below nor fuzzed. Benchmarks have a format
  // each.
  std::set<std::string> missing = {"nccl-tests", "nccl-tests JSON", "OSU", "table"};
  for (const Importer& importer : importers()) missing.emplace(importer.name);
  for (const Seed& seed : importer_seeds()) {
    missing.erase(seed.importer);
    InputFile input = InputFile::from_memory(seed.text, "seed");
    if (seed.importer == "benchmark log")
      missing.erase(bench_logs::read_collective_log(input, {}).format);
  }
  EXPECT_THAT(missing, testing::IsEmpty());
}

TEST(Importers, EachRecognisesItsOwnSeedsAlone) {
  // Of other importers only PyTorch's may take what somebody else reads, JSON of any kind, and the
  // last one; the order of the others says nothing.
  const std::set<std::string_view> last_resorts = {"PyTorch trace", "unknown"};
  for (const Seed& seed : importer_seeds()) {
    EXPECT_EQ(importer_of(seed.text), seed.importer);
    for (const Importer& importer : importers()) {
      if (importer.name == seed.importer || last_resorts.contains(importer.name)) continue;
      EXPECT_FALSE(importer.matches(Head(seed.text)))
          << importer.name << " takes a seed of " << seed.importer;
    }
  }
}

TEST(Importers, EachReadsOrSaysWhatToDoInstead) {
  for (const Importer& importer : importers()) {
    EXPECT_NE(importer.read == nullptr, importer.advice.empty()) << importer.name;
    EXPECT_EQ(importer.read == nullptr, importer.join == nullptr) << importer.name;
  }
  for (const Seed& seed : importer_seeds())
    if (const Importer& importer = *recognise(seed.text).importer; importer.read == nullptr) {
      EXPECT_EQ(refusal_of([&] { job_from(seed.text, "file"); }),
                "file: " + advice_for(importer, "file"));
    }
}

/// The first cells of the table rows of a page.
std::set<std::string> first_cells(const std::filesystem::path& page) {
  std::set<std::string> cells;
  std::ifstream file(page);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| ")) cells.insert(line.substr(2, line.find(" |", 2) - 2));
  return cells;
}

TEST(Importers, EachHasARowInTheDocs) {
  const std::set<std::string> rows = first_cells("docs/importers.md");
  for (const Importer& importer : importers())
    if (importer.name != "unknown") {
      EXPECT_TRUE(rows.contains(std::string(importer.name))) << importer.name;
    }
}

TEST(Format, AHeadFullOfProcessGroupsIsStillAPyTorchTrace) {
  // 1024 ranks in many groups fill the first 64 KiB before any event; nccl-tests name nccl_version
  // too.
  const std::string groups(70'000, ' ');
  const std::string text =
      R"({"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":0,"world_size":1,)"
      R"("nccl_version":"2.27.3","pg_config":[)" +
      groups + R"(]},"traceName":"all_reduce_perf.json","traceEvents":[)" + kernel("gemm", 0, 10) +
      "]}";
  EXPECT_EQ(importer_of(std::string_view(text).substr(0, 65536)), "PyTorch trace");
  EXPECT_EQ(job_from(text).ranks.at(0).compute.size(), 1u);
}

TEST(Format, AByteOrderMarkIsNoObstacle) {
  EXPECT_EQ(job_from("\xef\xbb\xbf" + trace_of(0, 1, {kernel("gemm", 0, 10)})).ranks.size(), 1u);
}

// ---- numbers, names and groups of PyTorch's traces ----

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

TEST(KernelNames, OfEveryLibraryThatCommunicatesAreKnown) {
  using enum Communicates;
  using enum CommOp;
  struct Case {
    const char* name;
    Communicates communicates;
    CommOp op;
  };
  const std::vector<Case> cases = {
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", yes, all_reduce},
      {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", yes, unknown},
      {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", yes, all_reduce},
      {"void aiter::cross_device_reduce_2stage<float, 8>()", yes, all_reduce},
      {"multimem_all_reduce_kernel<c10::BFloat16>", yes, all_reduce},
      {"multimem_all_gather_kernel<16>", yes, all_gather},
      {"one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>", yes, all_reduce},
      {"two_shot_all_reduce_kernel_inplace<float>", yes, all_reduce},
      {"flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float>", yes,
       all_reduce},
      {"tensorrt_llm::kernels::oneShotAllReduceKernel<float, 2>", yes, all_reduce},
      {"mscclpp::allreduce7<float>", yes, all_reduce},
      {"oneccl_allreduce_pcie<float>", yes, all_reduce},
      {"oneccl_reduce_base<float, 2, 16, 1, 1, 2>", yes, unknown},
      {"deep_ep::internode_ll::dispatch<true>", yes, all_to_all},
      {"my_own_allreduce_kernel", maybe, unknown},
      {"void lamport_style_sum<float>", maybe, unknown},
      {"aten::all_reduce", no, unknown},
      {"void at::native::reduce_kernel<512, 1>", no, unknown},
      {"sm90_xmma_gemm_bf16bf16_bf16f32", no, unknown}};
  for (const Case& c : cases) {
    const std::string low = lowered(c.name);
    EXPECT_EQ(kernel_communicates(low), c.communicates) << c.name;
    if (c.communicates == Communicates::yes) {
      EXPECT_EQ(op_of_kernel_name(low), c.op) << c.name;
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
