// Private: a verb's parser, given words as the command's is.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "linerate/verbs/parse_words.hpp"

namespace linerate::python {

using Words = std::vector<std::string>;

/// The parser of `linerate VERB`, or of VERB and its sub-verb. Python's keywords become words of a
/// command line, and this parses them. So both have the same options, checks and messages.
class VerbParser {
 public:
  template <typename Options>
  VerbParser(Words verb, Options& options) : verb_(std::move(verb)) {
    app_.require_subcommand(1);
    last_ = &app_;
    for (const std::string& name : verb_) last_ = last_->add_subcommand(name);
    add_options(*last_, options);
  }
  VerbParser(const VerbParser&) = delete;
  VerbParser& operator=(const VerbParser&) = delete;

  /// Throws UsageError.
  void parse(Words words) {
    words.insert(words.begin(), verb_.begin(), verb_.end());
    verbs::parse_words(app_, words);
  }
  const CLI::App& verb() const { return *last_; }

 private:
  Words verb_;
  CLI::App app_{"", "linerate"};
  CLI::App* last_;
};

}  // namespace linerate::python
