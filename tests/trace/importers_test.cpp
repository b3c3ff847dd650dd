#include "linerate/trace/importers.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "linerate/core/error.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "trace/importer_seeds.hpp"

namespace linerate::trace {
namespace {

/// The importer that a file with this text is given to.
std::string_view importer_of(std::string_view text) { return recognise(text).importer->name; }

TEST(Importers, EachHasASeed) {
  // What has none is neither recognised by the tests below nor fuzzed.
  std::set<std::string_view> missing;
  for (const Importer& importer : importers()) missing.insert(importer.name);
  for (const Seed& seed : importer_seeds()) missing.erase(seed.importer);
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

TEST(Format, AMixtureOfKindsIsRefused) {
  EXPECT_THROW(job_of_files({{"rank0.json", trace_of(0, 1, {})},
                             {"horovod.json",
                              R"([{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":1,"pid":7}])"}}),
               UsageError);
}

}  // namespace
}  // namespace linerate::trace
