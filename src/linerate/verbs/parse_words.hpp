// Reads a command line: what CLI11 refuses is said in linerate's words.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace linerate::verbs {

/// Runs the callbacks of the verb that the words name. Throws UsageError with place, expected,
/// found, what was probably meant and whose --help to read; CLI::Success for --help and --version.
void parse_words(CLI::App& app, const std::vector<std::string>& words);

}  // namespace linerate::verbs
