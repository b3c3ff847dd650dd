// linerate whatif -w workload.json -c cluster.json --ranks ... --bandwidth ... --strategy ...: the
// predicted step of every combination. And linerate whatif all-reduce -c cluster.json --ranks 4
// --size 1MiB,64MiB: the time of one collective, with its interval.
#include <fmt/format.h>

#include <cstdlib>

#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/verbs.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {
namespace {

struct WhatifArguments : Given<verbs::WhatifOptions> {
  std::string timeline, plan;
  bool csv = false, plot = false;
};

// POSIX: the first of these that is set and not empty decides. It says whether the terminal shows
// braille.
std::string locale_name() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) return value;
  return "";
}

// Files are written before anything is printed: an error of theirs comes in place of the answer.
void run_whatif(const WhatifArguments& a, const std::string& command) {
  if (a.csv + a.json + a.plot > 1)
    throw UsageError("--csv, --json and --plot exclude each other; give one of them");
  const std::vector<std::string> inputs = a.options.question.inputs();
  verbs::refuse_input_as_output("--html", a.html, inputs);
  verbs::refuse_input_as_output("--timeline", a.timeline, inputs);
  verbs::refuse_input_as_output("--plan", a.plan, inputs);
  const verbs::Asked asked = verbs::whatif(a.options);
  const doc::Predictions& answer = asked.answer;
  if (!a.timeline.empty() || !a.plan.empty()) {  // of one combination; the library refuses more
    const whatif::Planned planned =
        whatif::plan_one(*asked.workload, *asked.cluster, asked.question);
    if (!a.plan.empty()) doc::save(planned.plan, a.plan);
    if (!a.timeline.empty()) doc::save(whatif::timeline_of(planned, *asked.workload), a.timeline);
  }
  if (!a.html.empty()) {
    report::Inputs page = verbs::page_of(asked);
    for (const std::string& file : inputs)  // its foot names the files that were read
      if (!file.empty()) page.files.push_back(file);
    report::save_page(page, command, std::string(kVersion), a.html);
  }
  fmt::print("{}", a.json  ? doc::to_json(answer)
                   : a.csv ? report::to_csv(answer)
                           : report::to_text(answer));
  if (a.plot) fmt::print("{}", report::to_curves(answer, locale_name()));
  // CSV has no place for them.
  if (a.csv) print_notes(answer.notes);
}

/// A sub-verb for each collective.
void add_collectives(CLI::App& whatif) {
  for (const std::string_view name : kCollectiveNames) {
    Given<verbs::CollectiveOptions> given;
    given.options.collective = parse_collective(name);
    const auto [verb, a] =
        add_verb(whatif, std::string(name), fmt::format("Time of one {}.", name), given);
    // Every spelling of core/dtype.hpp: all_reduce, AllReduce, allreduce.
    std::string plain(name);
    std::erase(plain, '-');
    if (plain != name) verb->alias(plain);
    verb->ignore_case()->ignore_underscore();
    verb->add_flag("--json", a->json, "Print the predictions as JSON.");
    verb->callback([a = a, verb = verb, &whatif] {
      // `whatif --ranks 4 all-reduce`: the option would belong to the other question and be lost.
      // The message shows the line as it should be.
      for (const CLI::Option* option : whatif.get_options())
        if (option->count() > 0)
          throw UsageError(
              fmt::format("{0}: options go after {1}; write linerate whatif {1} {0} ...",
                          option->get_name(), verb->get_name()));
      const cost::CollectiveTimes times = verbs::whatif_collective(a->options);
      fmt::print("{}", a->json ? report::to_json(times) : report::to_text(times));
    });
  }
}

}  // namespace

void setup_whatif(CLI::App& app) {
  const auto [verb, a] = add_verb<WhatifArguments>(
      app, "whatif", "Predict the step with another strategy, rank count or network.");
  verb->add_option("--timeline", a->timeline,
                   "File to save the predicted Timeline to. Ask for one combination.");
  verb->add_option("--plan", a->plan, "File to save the Plan to. Ask for one combination.");
  verb->add_option("--html", a->html, "Also write a page with charts.");
  verb->add_flag("--plot", a->plot, "Draw the scaling factor over bandwidth in the terminal.");
  verb->add_flag("--csv", a->csv, "Print the predictions as CSV.");
  verb->add_flag("--json", a->json, "Print the predictions as JSON.");
  add_collectives(*verb);
  verb->callback([a = a, verb = verb] {
    // Of a sub-verb this callback runs, too.
    if (verb->get_subcommands().empty()) run_whatif(*a, verbs::command_line(*verb));
  });
}

}  // namespace linerate::cli
