// What a strategy says of a value that an option cannot have.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/planner.hpp"

namespace linerate::plan {
namespace {

using ::testing::HasSubstr;

/// The error of a strategy, empty where there is none.
std::string error_of(const std::string& strategy) {
  try {
    Planner(doc::parse_strategy(strategy), {});
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

/// As the registry's parts name their options themselves, to one that asks for another.
std::vector<std::string> options_of(const std::string& prefix, const std::string& component) {
  const std::string said =
      error_of(prefix + component + "(" + (component == "kfac" ? "spd, " : "") + "zzz=1)");
  const std::size_t known = said.find("Known: ");
  EXPECT_NE(known, std::string::npos) << component << ": " << said;
  std::vector<std::string> options;
  for (const std::string& option : split_outside_parentheses(said.substr(known + 7), ','))
    if (option != "none") options.emplace_back(trim(option));
  return options;
}

TEST(EveryOption, SaysWhatItExpectedAndWhatItFound) {
  int refused = 0;
  const auto check = [&](const std::string& prefix, const std::string& component) {
    for (const std::string& option : options_of(prefix, component))
      for (const char* value : {"-3", "0", "0.37", "17", "4294967297", "1e300", "5GB", "word"}) {
        const std::string first = component == "kfac" ? "spd, " : "";
        const std::string said =
            error_of(fmt::format("{}{}({}{}={})", prefix, component, first, option, value));
        if (said.find("expected") == std::string::npos) continue;
        ++refused;
        EXPECT_THAT(said, HasSubstr("found")) << component << ", " << option << "=" << value;
        EXPECT_THAT(said, HasSubstr(value)) << component << ", " << option;
      }
  };
  for (const auto& line : exchanges().lines()) check("", line.name);
  for (const auto& line : extras().lines())
    if (line.name != kAuto) check("ddp+", line.name);  // whose options are its compressors'
  EXPECT_GT(refused, 300);
}

TEST(EveryOption, OfACompressorIsNamedAmongTheKnown) {
  int gathered = 0;
  for (const auto& line : compress::compressors().lines()) {
    std::vector<std::string> known = options_of("ddp+", line.name);
    std::vector<std::string> taken = compress::options_of(line.name);
    if (error_of("ddp+" + line.name + "(exchange=gather)").empty()) {
      taken.emplace_back("exchange");
      ++gathered;
    }
    EXPECT_THAT(known, ::testing::UnorderedElementsAreArray(std::set(taken.begin(), taken.end())))
        << line.name;
    for (const std::string& option : known)  // each is taken, with this value or another
      EXPECT_THAT(error_of(fmt::format("ddp+{}({}=word)", line.name, option)),
                  ::testing::Not(HasSubstr("unknown option")));
  }
  EXPECT_GT(gathered, 5);
}

TEST(EveryOption, IsReadWholeBeforeItIsShortened) {
  EXPECT_THAT(error_of("kfac(spd, subsample=4294967297)"), HasSubstr("found 4294967297"));
}

}  // namespace
}  // namespace linerate::plan
