// Each check parses with linerate's own parsers, so a check and the verb agree on what a number is.
// A text that is no number and a number out of bounds get the same message: what was expected and
// what was found.
#include "linerate/verbs/option_checks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "linerate/trace/load.hpp"

namespace linerate::verbs {
namespace {

/// The message of `text` when `good` does not hold for its number; parse_words() puts the option
/// before it.
template <typename Number, typename Good>
std::string complaint(const std::string& text, std::string_view expected,
                      Number (*parse)(std::string_view), Good good) {
  try {
    if (good(parse(text))) return "";
  } catch (const UsageError&) {
  }
  return fmt::format("expected {}, found {}", expected, text);
}

// "; did you mean --bandwidth?", or nothing if no known word is near enough.
std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

/// Of a finite number: "inf" and "nan" parse, and no option means them. `shown` is what --help
/// prints.
template <typename Good>
CLI::Validator number_check(const std::string& expected, Good good, std::string shown) {
  return {[=](const std::string& text) {
            return complaint(text, "a number " + expected, parse_number,
                             [=](double x) { return std::isfinite(x) && good(x); });
          },
          std::move(shown)};
}

}  // namespace

CLI::Validator above_zero() {
  return number_check(
      "above 0", [](double x) { return x > 0; }, "ABOVE 0");
}

CLI::Validator from_zero() {
  return number_check(
      "from 0", [](double x) { return x >= 0; }, "FROM 0");
}

CLI::Validator between(double least, double most) {
  return number_check(
      fmt::format("from {} to {}", least, most), [=](double x) { return x >= least && x <= most; },
      fmt::format("{} TO {}", least, most));
}

CLI::Validator count(std::int64_t least, std::int64_t most) {
  return {[=](const std::string& text) {
            return complaint(text, fmt::format("a whole number from {} to {}", least, most),
                             parse_integer,
                             [=](std::int64_t n) { return n >= least && n <= most; });
          },
          fmt::format("{} TO {}", least, most)};
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  return {[=](const std::string& text) -> std::string {
            if (std::ranges::find(words, text) != words.end()) return "";
            return fmt::format("expected {}, found {}{}", join(words, " or "), text,
                               suggestion(text, words));
          },
          "{" + join(words, ",") + "}"};
}

// A document is there, but of another kind: "<workload>: expected a Workload or a file, found a
// Cluster".
void Documents::refuse(const std::string& name, std::size_t found, std::size_t expected) {
  // In the order of Documents::Held.
  constexpr std::array<std::string_view, 6> kKinds = {"Workload", "Cluster",     "Plan",
                                                      "Timeline", "Predictions", "Advice"};
  throw UsageError(fmt::format("{}: expected a {} or a file, found a {}", name, kKinds.at(expected),
                               kKinds.at(found)));
}

// A document in memory is shared, not copied: verbs read it alone.
std::shared_ptr<const doc::Cluster> cluster_of(const std::string& name, const Caller& caller) {
  if (auto held = caller.documents.find<doc::Cluster>(name)) return held;
  return std::make_shared<doc::Cluster>(doc::load_cluster(name));
}

std::shared_ptr<const doc::Timeline> timeline_of(const std::string& name, const Caller& caller) {
  if (auto held = caller.documents.find<doc::Timeline>(name)) return held;
  return std::make_shared<doc::Timeline>(trace::load_timeline({name}));
}

namespace {

// In quotes if a shell would split or change it. "dear+codec(ratio=8)" needs them for its
// parentheses.
std::string quoted(const std::string& text) {
  const bool plain = text.find_first_of(" ()[]$&;|<>*?'\"\\") == std::string::npos && !text.empty();
  return plain ? text : "\"" + text + "\"";
}

}  // namespace

// Only what was given is named: defaults may differ in a later version, and the page says which
// version made it.
std::string command_line(const CLI::App& verb) {
  std::string line = "linerate " + verb.get_name();
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0) continue;
    const bool positional = option->get_name(false, false).rfind("-", 0) != 0;
    if (option->get_items_expected() == 0) {
      line += " " + option->get_name();
      continue;
    }
    for (const std::string& value : option->results())
      line += (positional ? " " : " " + option->get_name() + " ") + quoted(value);
  }
  return line;
}

// CLI11 reads the words and knows the options; its messages name neither what was expected nor
// where. So its error is looked at once more with the words that were read, and linerate's own
// message is made of what they show. An example: "linerate whatif --bandwith 10Gbit/s" leaves two
// words that whatif does not know. The message is about the first: the second is its value. It ends
// with "did you mean --bandwidth?".

namespace {

// "linerate whatif all-reduce", as one would type it.
std::string full_name(const CLI::App& verb) {
  const CLI::App* parent = verb.get_parent();
  return parent ? full_name(*parent) + " " + verb.get_name() : verb.get_name();
}

std::vector<std::string> names_of_subverbs(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::App* sub : verb.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// A single dash is a value: standard input by custom.
bool looks_like_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

// It takes no value.
bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

// What `verb` does not know; "--", before which options end, is nobody's.
std::vector<std::string> unknown_to(const CLI::App& verb) {
  std::vector<std::string> unknown = verb.remaining();
  std::erase(unknown, "--");
  return unknown;
}

// About the first option that `verb` does not know; empty if it knows all. Of "--bandwith=10Gbit/s"
// the name alone is compared.
std::string unknown_option(const CLI::App& verb) {
  const std::vector<std::string> unknown = unknown_to(verb);
  const auto at = std::ranges::find_if(unknown, looks_like_option);
  if (at == unknown.end()) return "";
  const std::string name = at->substr(0, at->find('='));
  std::vector<std::string> names;  // a positional has one for the help alone: nobody can mistype it
  for (const CLI::Option* option : verb.get_options())
    if (!option->get_positional()) names.push_back(option->get_name());
  return fmt::format("expected one of its options, found {}{}", name, suggestion(name, names));
}

// The same of a word that is no option. An unknown option's value would be one.
std::string unknown_word(const CLI::App& verb) {
  const std::vector<std::string> unknown = unknown_to(verb);
  if (unknown.empty()) return "";
  const std::vector<std::string> subverbs = names_of_subverbs(verb);
  const std::string one_of = "one of " + join(subverbs, ", ");
  // Only `whatif` has sub-verbs that may be left out.
  const std::string expected = subverbs.empty()                        ? "no further word"
                               : verb.get_require_subcommand_min() > 0 ? one_of
                                                                       : "an option, or " + one_of;
  return fmt::format("expected {}, found \"{}\"{}", expected, unknown.front(),
                     suggestion(unknown.front(), subverbs));
}

// "give --ranks TEXT: Rank counts, such as 16,32,64."
std::string how_to_give(const CLI::Option& option) {
  const std::string type = option.get_positional() ? "" : " " + option.get_type_name();
  return fmt::format("give {}{}: {}", option.get_name(), type, option.get_description());
}

// CLI11's errors hold no option, but their text names one; a flag without its dashes. The text is
// cut at blanks and colons, and each word is tried as a name, as it is and with dashes.
const CLI::Option* option_named_in(const CLI::App& verb, const std::string& text) {
  for (std::size_t end, at = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find_first_of(" :", at), text.size());
    const std::string word = text.substr(at, end - at);
    for (const std::string& name : {word, "--" + word})
      if (const CLI::Option* option = verb.get_option_no_throw(name)) return option;
  }
  return nullptr;
}

// Too many values or too few. An option that was given twice is shown with both of its values.
std::string about_count(const CLI::Option& option) {
  const std::size_t found = option.count();
  if (is_flag(option)) return "expected no value, found one; leave out what follows its name";
  if (found == 0) return "expected a value, found none; " + how_to_give(option);
  return fmt::format("expected one value, found {}: \"{}\"; {}", found,
                     join(option.results(), "\", \""), how_to_give(option));
}

// About an option: what CLI11 refuses, with place, expected and found. Checks of linerate's own
// (option_checks.hpp) say what they expect already; CLI11 puts the option's name before that, but
// not for positionals.
std::string said_of(const CLI::App& verb, const CLI::Option& option, const CLI::ParseError& e) {
  const std::string name = full_name(verb);
  if (e.get_name() == "RequiredError")
    return fmt::format("{}: expected {}, found nothing; {}", name, option.get_name(),
                       how_to_give(option));
  const std::string place = option.get_positional() ? name : option.get_name();
  if (e.get_name() == "ArgumentMismatch") return place + ": " + about_count(option);
  if (e.get_name() == "ConversionError")  // CLI11 names types INT, UINT and FLOAT
    return fmt::format(
        "{}: expected {}, found {}", place,
        option.get_type_name().find("INT") != std::string::npos ? "a whole number" : "a number",
        join(option.results(), ", "));
  return option.get_positional() ? fmt::format("{}: {}", place, e.what()) : e.what();
}

// From the program down to the verb, or its sub-verb, that was named: linerate, whatif, all-reduce.
std::vector<const CLI::App*> named_verbs(const CLI::App& app) {
  std::vector<const CLI::App*> verbs = {&app};
  // CLI11 lists the sub-verbs that were given unless a filter asks for all.
  while (!verbs.back()->get_subcommands().empty())
    verbs.push_back(verbs.back()->get_subcommands().front());
  return verbs;
}

// What explains most comes first: an option that no verb knows, from the program down. Then an
// option that CLI11 names, with its value. Then a word too many. What is left is a verb that was
// not given. In this order the value of a mistyped option is never taken for a word too many.
std::string usage_message(const std::vector<const CLI::App*>& verbs, const CLI::ParseError& e) {
  const CLI::App& last = *verbs.back();
  const auto with_help = [](const CLI::App& verb, const std::string& said) {
    return fmt::format("{}\n{} --help says what it takes", said, full_name(verb));
  };
  for (const auto unknown : {unknown_option, unknown_word}) {
    for (const CLI::App* verb : verbs)
      if (const std::string said = unknown(*verb); !said.empty())
        return with_help(*verb, full_name(*verb) + ": " + said);
    if (const CLI::Option* option = option_named_in(last, e.what());
        option && e.get_name() != "ExtrasError")
      return with_help(last, said_of(last, *option, e));
  }
  return with_help(last, fmt::format("{}: expected one of {}, found nothing", full_name(last),
                                     join(names_of_subverbs(last), ", ")));
}

// Flags take no value, and others one that is there: CLI11 takes whatever follows an option, the
// next option too. An example: "--output --json" would write a file named "--json". A value may
// still begin with one dash, as -1 does.
void require_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (is_flag(*option)) {
      option->disable_flag_override();
      continue;
    }
    const bool named = !option->get_positional();
    const auto complaint = [named](const std::string& value) -> std::string {
      if (value.empty()) return "expected a value, found an empty text";
      return named && value.starts_with("--") ? "expected a value, found " + value : "";
    };
    option->transform(CLI::Validator(complaint, ""));  // before the option's own checks
  }
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    require_values(*sub);
}

// "--name=" and "-n=value" as two words: CLI11 takes the next word for the value of the one, and
// "=value" for that of the other. An example: "--ranks= -n=4 --size=1" becomes "--ranks", "", "-n",
// "4" and "--size=1". What follows "--" is left as it is.
std::vector<std::string> with_values_apart(const std::vector<std::string>& words) {
  std::vector<std::string> apart;
  const auto options_end = std::ranges::find(words, "--");
  for (auto word = words.begin(); word != options_end; ++word) {
    const std::size_t equals = word->find('=');
    const bool split = word->starts_with("--") ? equals == word->size() - 1
                                               : word->starts_with('-') && equals == 2;
    apart.push_back(split ? word->substr(0, equals) : *word);
    if (split) apart.push_back(word->substr(equals + 1));
  }
  apart.insert(apart.end(), options_end, words.end());
  return apart;
}

}  // namespace

void parse_words(CLI::App& app, const std::vector<std::string>& words) {
  require_values(app);
  std::vector<std::string> backwards = with_values_apart(words);  // as CLI11 takes a list
  std::ranges::reverse(backwards);
  try {
    app.parse(std::move(backwards));
  } catch (const std::exception& e) {
    const auto* const refused = dynamic_cast<const CLI::ParseError*>(&e);
    if (refused && refused->get_exit_code() == 0) throw;
    const std::vector<const CLI::App*> verbs = named_verbs(app);
    // CLI11 reads values before it prints help. But help says how a value is written.
    for (const CLI::App* verb : verbs)
      if (const CLI::Option* help = verb->get_help_ptr(); help && help->count() > 0)
        throw CLI::CallForHelp();
    if (!refused) throw;
    throw UsageError(usage_message(verbs, *refused));
  }
}

}  // namespace linerate::verbs
