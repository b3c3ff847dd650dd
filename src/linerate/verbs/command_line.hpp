// The command as it was typed, for pages that state how they were made.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace linerate::verbs {

/// "linerate VERB --option value ...", options in the order of --help, quoted for a shell where
/// needed. Call after parsing.
std::string command_line(const CLI::App& verb);

}  // namespace linerate::verbs
