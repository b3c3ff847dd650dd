#include "linerate/cli/usage_message.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "linerate/core/text.hpp"

namespace linerate::cli {
namespace {

const CLI::App& deepest_verb(const CLI::App& app) {
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  return *verb;
}

// "; did you mean --bandwidth?" for the first unknown option that is near a known one.
std::string suggestion(const CLI::App& verb) {
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options()) known.push_back(option->get_name());
  for (const std::string& word : verb.remaining()) {
    const std::string near = word.starts_with("--") ? nearest(word, known) : "";
    if (!near.empty()) return "; did you mean " + near + "?";
  }
  return "";
}

std::string full_name(const CLI::App& verb) {
  const CLI::App* parent = verb.get_parent();
  return parent ? full_name(*parent) + " " + verb.get_name() : verb.get_name();
}

}  // namespace

std::string usage_message(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App& verb = deepest_verb(app);
  return fmt::format("{}{}\n{} --help says what it takes", e.what(), suggestion(verb),
                     full_name(verb));
}

}  // namespace linerate::cli
