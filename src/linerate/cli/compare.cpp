// linerate compare predicted.json measured.json: the error of a prediction, task kind by task kind,
// next to the noise.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "linerate/cli/verb.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/trace/import_files.hpp"

namespace linerate::cli {
namespace {

struct CompareVerbOptions {
  std::string predicted, measured, noise;
  std::optional<int> warm_up;
  bool tasks = false, json = false;
};

void run_compare(const CompareVerbOptions& o) {
  const doc::Timeline predicted = doc::load_timeline(o.predicted);
  const doc::Timeline measured = trace::load_timeline({o.measured});
  std::optional<doc::Timeline> noise;
  if (!o.noise.empty()) noise = trace::load_timeline({o.noise});
  compare::CompareOptions options;
  options.warm_up = o.warm_up;
  options.noise = noise ? &*noise : nullptr;
  const compare::Comparison comparison = compare::compare(predicted, measured, options);
  fmt::print("{}{}", o.json ? compare::to_json(comparison) : compare::to_text(comparison, o.tasks),
             o.json ? "\n" : "");
}

}  // namespace

void setup_compare(CLI::App& app) {
  const auto o = std::make_shared<CompareVerbOptions>();
  CLI::App* verb = app.add_subcommand("compare", "Compare a predicted and a measured Timeline.");
  verb->add_option("predicted", o->predicted, "Timeline of a simulation.")->required();
  verb->add_option("measured", o->measured,
                   "Timeline of a run, a trace of its one rank, or the folder or pattern of all "
                   "its ranks' traces.")
      ->required();
  verb->add_option("--noise", o->noise,
                   "A second run of the same: its difference is the noise floor. "
                   "Absent: interleaved halves of the measured run.");
  verb->add_option("--warm-up", o->warm_up,
                   "Measured steps to drop; absent: a tenth, at least two.")
      ->check(CLI::Range(0, 1'000'000));
  verb->add_flag("--tasks", o->tasks, "List every task that has a partner.");
  verb->add_flag("--json", o->json, "Print everything as JSON.");
  verb->callback([o] { run_compare(*o); });
}

}  // namespace linerate::cli
