#include "linerate/verbs/command_line.hpp"

#include <CLI/CLI.hpp>

namespace linerate::verbs {
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

}  // namespace linerate::verbs
