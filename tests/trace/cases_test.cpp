// Files as people have them (cases/*.case), and what the documents say that are made of them.
#include <gmock/gmock.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"
#include "support/case_files.hpp"

namespace linerate::trace {
namespace {

using doc::Json;
using testing::HasSubstr;

/// Ranks of each collective, in order, and null if some of its group are missing.
Json matched_of(const Job& job, const MatchResult& matched) {
  Json all = Json::array();
  for (const Matched& m : matched.collectives) {
    Json ranks = Json::array();
    for (const Member& member : m.members)
      ranks.push_back(job.ranks[static_cast<std::size_t>(member.rank)].rank);
    if (!m.complete) ranks.push_back(nullptr);
    all.push_back(ranks);
  }
  return all;
}

std::string message_or(const auto& document) {
  try {
    return document();
  } catch (const Error& e) {
    return Json(e.what()).dump();
  }
}

/// All that is made of the files of one job.
Json documents_of(std::vector<InputFile> files) {
  Json all;
  all["importer"] = recognise(files.front().head()).importer->name;
  all["refused"] = Json::parse(message_or([&] {
    const Job job = read_job(files);
    const Breakdown b = break_down(job);
    const MatchResult matched = match_collectives(job);
    all["job"] = Json::parse(recording_of(job));
    all["origin_ns"] = job.origin_ns;
    all["notes"] = job.notes;
    all["explain"] = Json::parse(explain_json(b, judge(b)));
    all["matched"] = matched_of(job, matched);
    all["unmatched"] = matched.notes;
    all["workload"] = Json::parse(message_or([&] {
      std::vector<std::string> notes;
      return doc::to_json(workload_of(job, "job", notes));
    }));
    return std::string("null");
  }));
  return all;
}

/// The texts of a list as one.
std::string text_of(const Json& value) {
  if (!value.is_structured()) return value.is_string() ? value.get<std::string>() : value.dump();
  std::string all;
  for (const Json& item : value) all += text_of(item) + "\n";
  return all;
}

/// "PATH = VALUE", "PATH counts ITEMS", "PATH has TEXT" or "PATH lacks TEXT". What is not there is
/// null.
void expect(const Json& documents, const std::string& line) {
  SCOPED_TRACE(line);
  std::istringstream words(line);
  std::string path, verb, value;
  words >> path >> verb;
  std::getline(words >> std::ws, value);
  const Json::json_pointer place(path);
  const Json found = documents.contains(place) ? documents.at(place) : Json();
  if (verb == "has") {
    EXPECT_THAT(text_of(found), HasSubstr(value));
  } else if (verb == "lacks") {
    EXPECT_THAT(text_of(found), testing::Not(HasSubstr(value)));
  } else if (verb == "counts") {
    EXPECT_EQ(found.size(), std::stoul(value));
  } else if (const Json expected = Json::parse(value); expected.is_number() && found.is_number()) {
    EXPECT_NEAR(found.get<double>(), expected.get<double>(),
                1e-12 + 1e-9 * std::abs(expected.get<double>()));
  } else {
    EXPECT_EQ(found, expected);
  }
}

class TraceCases : public testing::TestWithParam<FileCase> {};
INSTANTIATE_TEST_SUITE_P(OfFiles, TraceCases, testing::ValuesIn(cases_in(TRACE_CASES)),
                         [](const auto& test) { return test.param.name; });

TEST_P(TraceCases, SayWhatIsExpected) {
  std::vector<InputFile> files;
  for (const auto& [title, text] : GetParam().parts)
    if (title.starts_with("file ")) files.push_back(InputFile::from_memory(text, title.substr(5)));
  const Json documents = documents_of(std::move(files));
  std::istringstream expected(GetParam().part("expect"));
  for (std::string line; std::getline(expected, line);)
    if (!line.empty()) expect(documents, line);
}

}  // namespace
}  // namespace linerate::trace
