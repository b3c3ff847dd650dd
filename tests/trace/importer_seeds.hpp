// One small input of every importer at least, and pieces of the samples and fixtures if they are
// there: what mutation and fuzzing start from, and what the test of the importers recognises.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/case_files.hpp"
#include "trace/chakra_text.hpp"
#include "trace/feed_importer.hpp"

namespace linerate::trace {

/// One all-gather of 100 bytes.
inline std::string chakra_seed() {
  return chakra::head() + chakra::collective_node(2, 100, 100, 5);
}

/// A small file of one format.
struct Seed {
  std::string importer;  // its name
  std::string text;
};

/// At least one of every importer (importers_test.cpp). Texts are in files; a comma in the name of
/// a case parts what tells it from others of the same importer.
inline std::vector<Seed> importer_seeds() {
  std::vector<Seed> all = {
      {"Chakra execution trace", chakra_seed()},
      {"nsys database", "SQLite format 3" + std::string(5, '\0')},
      {"XLA profile", "\n\x10\x12\x09/host:CPU\x1a\x03"},
      {"Perfetto trace", "\n\x0e\x1a\x0cperfetto.com"},
      {"linerate Timeline",
       doc::to_json(
           timeline_of(job_from(trace_of(0, 2,
                                         {step(0, 0, 100), kernel("gemm", 0, 40),
                                          kernel("ncclDevKernel_AllReduce", 20, 50,
                                                 collective("allreduce", 10, 2, R"("Seq":1)"))})),
                       "trace.json"))}};
  for (const FileCase& c : cases_in(TRACE_SEEDS))
    all.push_back({c.name.substr(0, c.name.find(',')), c.part("text")});
  return all;
}

/// The same, and several files of one job, which feed_importer takes apart.
inline std::vector<std::string> format_seeds() {
  std::vector<std::string> all;
  for (const Seed& seed : importer_seeds()) all.push_back(seed.text);
  const std::string groups = R"({"1": [0, 1], "2": [2, 3]})";
  all.push_back(chakra_seed() + kNextFile + chakra_seed() + kNextFile + groups);
  const std::string rank =
      kernel("ncclDevKernel_AllReduce", 20, 50, collective("allreduce", 10, 2, R"("Seq":1)"));
  all.push_back(trace_of(0, 2, {step(0, 0, 100), rank}) + kNextFile +
                trace_of(1, 2, {step(0, 5, 100), rank}));
  return all;
}

/// And pieces of the fixtures and samples; files are cut to windows, so that an input costs
/// microseconds and every part is reached.
inline std::vector<std::string> seeds() {
  std::vector<std::string> all = format_seeds();
  for (const std::filesystem::path folder :
       {"tests/trace/fixtures", "../shared/data/kineto", "../shared/data/per_gradient",
        "../shared/data/collectives", "../shared/data/chakra"}) {
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
      InputFile input = InputFile::open(entry.path());
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

}  // namespace linerate::trace
