// The `linerate` command. A verb that needs LibTorch is started as `linerate-torch`, as git does
// with its verbs, so that every other verb starts in milliseconds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "linerate/cli/log_output.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

using namespace linerate;

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

std::string usage_message(const CLI::App* app, const CLI::Error& e) {
  const CLI::App& verb = deepest_verb(*app);
  return fmt::format("error: {}{}\n{} --help says what it takes\n", e.what(), suggestion(verb),
                     full_name(verb));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures, predicts and runs synchronous data-parallel training.", "linerate"};
  app.require_subcommand(1);
  app.failure_message(usage_message);
  app.set_version_flag("--version", LINERATE_VERSION);
  for (const cli::Verb& verb : cli::kVerbs) verb.setup(app);
  cli::print_log_records();
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), 2);
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 70;
  }
}
