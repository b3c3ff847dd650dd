#include "linerate/verbs/usage_message.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "linerate/core/text.hpp"

namespace linerate::verbs {
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

// About an unknown sub-verb; empty if none is required or given.
std::string unknown_word(const CLI::App& verb) {
  if (verb.get_require_subcommand_min() == 0) return "";
  std::vector<std::string> known;
  for (const CLI::App* sub : verb.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(sub->get_name());
  for (const std::string& word : verb.remaining()) {
    if (word.starts_with("-")) continue;
    const std::string near = nearest(word, known);
    return fmt::format("unknown \"{}\"{} Known: {}", word,
                       near.empty() ? ";" : "; did you mean \"" + near + "\"?", join(known, ", "));
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
  std::string said = unknown_word(verb);
  if (said.empty()) said = e.what() + suggestion(verb);
  // Of what is missing or too much CLI11 says the name alone.
  const bool names_place = said.starts_with("-") || said.starts_with("unknown");
  if (!names_place && e.get_name() != "ExtrasError") said = full_name(verb) + ": " + said;
  return fmt::format("{}\n{} --help says what it takes", said, full_name(verb));
}

}  // namespace linerate::verbs
