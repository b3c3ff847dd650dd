// What readers say of texts that they refuse (cases/*.case): place, expected and found.
#include <gmock/gmock.h>

#include <sstream>

#include "full_documents.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/json.hpp"
#include "support/case_files.hpp"
#include "support/message_of.hpp"

namespace linerate::doc {
namespace {

/// "A => B => C": A, B, C.
std::vector<std::string> parts_of(const std::string& line, const std::string& mark) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (std::size_t end; (end = line.find(mark, at)) != line.npos; at = end + mark.size())
    parts.push_back(line.substr(at, end - at));
  parts.push_back(line.substr(at));
  return parts;
}

const FullDocument& document_of(const std::string& kind) {
  static const std::vector<FullDocument> all = full_documents();
  return *std::ranges::find(all, kind, &FullDocument::kind);
}

std::string refusal(const std::string& kind, const std::string& text) {
  return support::message_of<InputError>([&] { return document_of(kind).reread(text); });
}

/// "PLACE = VALUE and PLACE = VALUE => TEXT => TEXT": the full document with these values is
/// refused with a message that has each text.
void expect_refused(const std::string& kind, const std::string& line) {
  SCOPED_TRACE(line);
  const std::vector<std::string> parts = parts_of(line, " => ");
  Json document = Json::parse(document_of(kind).text);
  for (const std::string& change : parts_of(parts.front(), " and ")) {
    const std::vector<std::string> sides = parts_of(change, " = ");
    document[Json::json_pointer(sides.at(0))] = Json::parse(sides.at(1));
  }
  const std::string said = refusal(kind, document.dump());
  for (std::size_t i = 1; i < parts.size(); ++i) EXPECT_THAT(said, testing::HasSubstr(parts[i]));
}

class Refused : public testing::TestWithParam<FileCase> {};
INSTANTIATE_TEST_SUITE_P(Texts, Refused, testing::ValuesIn(cases_in(DOC_CASES)),
                         [](const auto& test) { return test.param.name; });

// "change KIND" has a change a line; "text KIND" has a text, of which "says" has what is said.
TEST_P(Refused, SaysPlaceExpectedAndFound) {
  std::string said;
  for (const auto& [title, text] : GetParam().parts) {
    std::istringstream lines(text);
    if (title.starts_with("text ")) said = refusal(title.substr(5), text);
    for (std::string line; std::getline(lines, line);) {
      if (title.starts_with("change ")) expect_refused(title.substr(7), line);
      if (title == "says") {
        EXPECT_THAT(said, testing::HasSubstr(line));
      }
    }
  }
}

}  // namespace
}  // namespace linerate::doc
