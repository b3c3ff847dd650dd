// The message for a command line that is refused.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace linerate::verbs {

/// What is wrong, the option that was probably meant, and whose --help to read.
std::string usage_message(const CLI::App& app, const CLI::ParseError& e);

}  // namespace linerate::verbs
