// Private: the parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>
#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/report/inputs.hpp"
#include "linerate/verbs/option_checks.hpp"

namespace linerate::python {

namespace nb = nanobind;

/// A document as Python holds it: shared, never changed, so that threads may read it together.
template <typename Document>
struct Held {
  std::shared_ptr<const Document> document;
};

template <typename Document>
Held<Document> hold(Document document) {
  return {std::make_shared<const Document>(std::move(document))};
}

/// Without the GIL: what these functions do takes time and touches no Python object.
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

/// A class of a held document. What it adds are methods without the GIL.
template <typename Document>
struct DocumentClass : nb::class_<Held<Document>> {
  using nb::class_<Held<Document>>::class_;

  /// NAME(): make(document).
  template <typename Make>
  DocumentClass& gives(const char* name, Make make) {
    this->def(
        name, [make](const Held<Document>& held) { return make(*held.document); }, WithoutGil());
    return *this;
  }
  /// NAME(argument): make(document, argument).
  template <typename Argument, typename Make>
  DocumentClass& answers(const char* name, const char* argument, Make make) {
    this->def(
        name,
        [make](const Held<Document>& held, Argument value) { return make(*held.document, value); },
        nb::arg(argument), WithoutGil());
    return *this;
  }
  /// to_json(), from_json() and pickling. A document that crosses processes keeps the rules of a
  /// file.
  DocumentClass& as_json(Document (*read)(const std::string& text, const std::string& place)) {
    const auto json = [](const Document& document) { return to_json(document); };
    gives("to_json", json);
    this->def_static(
        "from_json",
        [read](const std::string& text, const std::string& place) {
          return hold(read(text, place));
        },
        nb::arg("text"), nb::arg("place"), WithoutGil());
    this->def("__getstate__", [json](const Held<Document>& held) { return json(*held.document); });
    this->def("__setstate__", [read](Held<Document>& held, const std::string& text) {
      new (&held) Held<Document>(hold(read(text, "a pickle")));
    });
    return *this;
  }
};

/// The page as HTML, with its texts in the words of Python: ranks= for --ranks.
std::string html_of(const report::Inputs& inputs);

void bind_errors(nb::module_& module);
void bind_documents(nb::module_& module);
/// Binds `options(verb)`: the options that a verb's parser has.
void bind_options(nb::module_& module);
void bind_verbs(nb::module_& module);

// Private: long work that obeys Ctrl-C, without the GIL.

/// Runs `work` in a thread of its own. The calling thread lets other threads of Python run, looks
/// for signals and hands the latest line of progress to `progress` (a callable, or None) ten times
/// a second. A signal's exception, or one of `progress`, stops the work and is raised when the work
/// has ended.
void run_interruptible(const std::function<void(const verbs::Caller&)>& work,
                       const verbs::Documents& documents, nanobind::handle progress);

template <typename Result>
Result interruptible(const std::function<Result(const verbs::Caller&)>& work,
                     const verbs::Documents& documents, nanobind::handle progress) {
  std::optional<Result> result;
  run_interruptible([&](const verbs::Caller& caller) { result.emplace(work(caller)); }, documents,
                    progress);
  return std::move(*result);
}

// Private: a verb's parser, given words as the command's is.

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
