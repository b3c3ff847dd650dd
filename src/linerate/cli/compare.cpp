// linerate compare predicted.json measured.json: the error of a prediction, task kind by task kind,
// next to the noise.
#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/verb.hpp"

namespace linerate::cli {
namespace {

struct CompareArguments {
  verbs::CompareOptions options;
  bool tasks = false, json = false;
};

void run_compare(const CompareArguments& a) {
  const compare::Comparison comparison = verbs::compare(a.options);
  fmt::print("{}{}", a.json ? compare::to_json(comparison) : compare::to_text(comparison, a.tasks),
             a.json ? "\n" : "");
}

}  // namespace

void setup_compare(CLI::App& app) {
  const auto a = std::make_shared<CompareArguments>();
  CLI::App* verb = app.add_subcommand("compare", "Compare a predicted and a measured Timeline.");
  verbs::add_options(*verb, a->options);
  verb->add_flag("--tasks", a->tasks, "List every task that has a partner.");
  verb->add_flag("--json", a->json, "Print everything as JSON.");
  verb->callback([a] { run_compare(*a); });
}

}  // namespace linerate::cli
