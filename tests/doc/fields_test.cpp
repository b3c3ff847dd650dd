// Every key of every document is read and written, and every value is kept whole or refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "full_documents.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"
#include "support/message_of.hpp"

namespace linerate::doc {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Pointer = Json::json_pointer;

std::string name_of_kind(const testing::TestParamInfo<FullDocument>& info) {
  return info.param.kind;
}

std::string refusal(const FullDocument& document, const std::string& text) {
  return support::message_of<InputError>([&] { return document.reread(text); });
}

std::string refusal(const FullDocument& document, const Json& changed) {
  return refusal(document, changed.dump());
}

/// The pointers to `json` and to all that it holds and `wanted` holds for.
template <typename Wanted>
void collect(const Json& json, const Pointer& place, Wanted wanted, std::vector<Pointer>& all) {
  if (wanted(json)) all.push_back(place);
  if (json.is_object())
    for (const auto& [key, value] : json.items()) collect(value, place / key, wanted, all);
  if (json.is_array())
    for (std::size_t i = 0; i < json.size(); ++i) collect(json[i], place / i, wanted, all);
}

std::vector<Pointer> objects_of(const Json& json) {
  std::vector<Pointer> all;
  collect(
      json, Pointer(), [](const Json& value) { return value.is_object(); }, all);
  return all;
}

/// What the refusal of a key that is near none lists, less what only people write: a Link's numbers
/// as texts with their units.
std::set<std::string> known_keys(const std::string& refusal) {
  const std::string_view before = "expected one of: ";
  const std::size_t list = refusal.find(before);
  EXPECT_NE(list, std::string::npos) << refusal;
  const auto keys = split_outside_parentheses(refusal.substr(list + before.size()), ',');
  std::set<std::string> known(keys.begin(), keys.end());
  for (const char* by_hand : {"bandwidth", "latency", "line_rate"}) known.erase(by_hand);
  return known;
}

/// The keys of an object; of a list's item, those of all its items, because the first of some has
/// no place for all.
std::set<std::string> keys_at(const Json& whole, const Pointer& place) {
  const Json& parent = whole[place.parent_pointer()];
  std::set<std::string> keys;
  for (const Json& object : parent.is_array() ? parent : Json::array({whole[place]}))
    for (const auto& item : object.items()) keys.insert(item.key());
  return keys;
}

class EveryDocument : public testing::TestWithParam<FullDocument> {};

TEST_P(EveryDocument, IsWrittenAgainByteForByte) {
  EXPECT_EQ(GetParam().reread(GetParam().text), GetParam().text);
}

TEST_P(EveryDocument, HasEachKeyThatItsReaderKnows) {
  const Json whole = Json::parse(GetParam().text);
  for (const Pointer& place : objects_of(whole)) {
    Json more = whole;
    more[place]["zzzzzzzzzzzz"] = 1;
    EXPECT_EQ(known_keys(refusal(GetParam(), more)), keys_at(whole, place)) << place.to_string();
  }
}

TEST_P(EveryDocument, LooksAtEachKeyThatItHas) {
  const Json whole = Json::parse(GetParam().text);
  for (const Pointer& place : objects_of(whole))
    for (const auto& item : whole[place].items()) {
      if (item.key() == "hash") continue;  // of a Plan: computed anew
      Json wrong = whole;
      wrong[place][item.key()] = Json{{"zzzzzzzzzzzz", 1}};
      const std::string key = (place / item.key()).to_string();
      EXPECT_THAT(refusal(GetParam(), wrong), HasSubstr("file: " + key)) << key;
    }
}

TEST_P(EveryDocument, HasEachKeyOnce) {
  const Json whole = Json::parse(GetParam().text);
  for (const Pointer& place : objects_of(whole)) {
    if (whole[place].empty()) continue;
    const std::string key = whole[place].items().begin().key();
    Json more = whole;
    more[place]["zzzzzzzzzzzz"] = 1;
    std::string text = more.dump();
    text.replace(text.find("zzzzzzzzzzzz"), 12, key);
    const std::string path = place.empty() ? "/" : place.to_string();
    EXPECT_THAT(
        refusal(GetParam(), text),
        HasSubstr(fmt::format("file: {}: expected each key once, found \"{}\" twice", path, key)));
  }
}

TEST_P(EveryDocument, SaysItsSchemaAndRefusesANewerOneByName) {
  Json document = Json::parse(GetParam().text);
  const int schema = document.at("schema").get<int>();
  document["schema"] = schema + 1;
  EXPECT_THAT(
      refusal(GetParam(), document),
      testing::StartsWith(fmt::format(
          "file: expected a {} of schema {}, found {}; this linerate is older than the file",
          GetParam().kind, schema, schema + 1)));
  document["schema"] = 0;
  EXPECT_THAT(refusal(GetParam(), document), HasSubstr("found 0; "));
}

/// The pointers to all values that hold no others.
std::vector<Pointer> leaves(const Json& json) {
  std::vector<Pointer> all;
  Json flat = json.flatten();
  flat.erase("/hash");  // of a Plan's text: computed anew
  for (const auto& leaf : flat.items()) all.emplace_back(leaf.key());
  return all;
}

bool may_be_negative(const FullDocument& document, const std::string& pointer) {
  return std::any_of(
      document.signed_keys.begin(), document.signed_keys.end(),
      [&](const std::string& key) { return pointer.find("/" + key) != std::string::npos; });
}

TEST_P(EveryDocument, KeepsAValueWholeOrRefusesItByPlaceWithWhatWasFound) {
  const Json whole = Json::parse(GetParam().text);
  const std::vector<Json> values = {-3,
                                    0,
                                    0.37,
                                    4294967297,
                                    -4294967295,
                                    1e300,
                                    "word",
                                    Json::array(),
                                    Json::object(),
                                    true,
                                    -1e300,
                                    9200000000000000000};
  int refused = 0;
  for (const Pointer& pointer : leaves(whole))
    for (const Json& value : values) {
      Json wrong = whole;
      wrong[pointer] = value;
      const std::string what = pointer.to_string() + " = " + value.dump();
      try {
        const Json kept = Json::parse(GetParam().reread(wrong.dump()));
        if (!value.is_number()) continue;
        EXPECT_TRUE(may_be_negative(GetParam(), pointer.to_string()) || value.get<double>() >= 0)
            << what;
        // What is 0 may be left out.
        if (kept.contains(pointer)) {
          EXPECT_EQ(kept[pointer].get<double>(), value.get<double>()) << what;
        } else {
          EXPECT_EQ(value.get<double>(), 0) << what;
        }
      } catch (const InputError& e) {
        ++refused;
        EXPECT_THAT(e.what(), AnyOf(HasSubstr("file: /"), HasSubstr("file: expected"))) << what;
        EXPECT_THAT(e.what(), AnyOf(HasSubstr("found"), HasSubstr("in all"), HasSubstr("\""),
                                    HasSubstr("at ")))
            << what;
      } catch (const std::exception& e) {
        ADD_FAILURE() << what << ": " << e.what();
      }
    }
  EXPECT_GT(refused, 20);
}

TEST(Schemas, AreReadBackToTheOldest) {
  constexpr DocumentKind kThing{"thing", 3, 2, "schema 1 had no name"};
  const auto says = [&](int schema) -> std::string {
    const Json json = {{"document", "thing"}, {"schema", schema}};
    const std::string place = "t.json";
    return support::message_of<InputError>(
        [&] { expect_document(JsonReader(json, place), kThing); });
  };
  EXPECT_EQ(says(2), "no error");
  EXPECT_EQ(says(3), "no error");
  EXPECT_EQ(says(1), "t.json: expected a thing of schema 2 to 3, found 1; schema 1 had no name");
  EXPECT_THAT(says(4), HasSubstr("expected a thing of schema 2 to 3, found 4; this linerate"));
}

INSTANTIATE_TEST_SUITE_P(Documents, EveryDocument, testing::ValuesIn(full_documents()),
                         name_of_kind);

TEST(FullDocuments, AreOfEveryKindThatTheModuleNames) {
  std::set<std::string> listed, named;
  for (const FullDocument& document : full_documents()) listed.insert(document.kind);
  const std::regex kind("DocumentKind k\\w+\\{\\s*\"([^\"]+)\"");
  for (const auto& file : std::filesystem::directory_iterator(DOC_SOURCES)) {
    if (file.path().extension() != ".cpp") continue;
    const std::string text = read_file(file.path());
    for (std::sregex_iterator at(text.begin(), text.end(), kind), end; at != end; ++at)
      named.insert((*at)[1]);
  }
  EXPECT_EQ(named, listed);
}

}  // namespace
}  // namespace linerate::doc
