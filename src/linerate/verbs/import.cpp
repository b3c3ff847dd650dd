#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>

#include "linerate/core/text.hpp"
#include "linerate/verbs/option_checks.hpp"

namespace linerate::verbs {

std::vector<std::string> ImportOptions::inputs() const {
  std::vector<std::string> all = files;
  all.push_back(add_cost);
  all.insert(all.end(), alone.begin(), alone.end());
  return all;
}

void add_options(CLI::App& verb, ImportOptions& o) {
  verb.add_option(
          "files", o.files,
          "Traces of all ranks of one job (files, folders, patterns), or one per-gradient log.")
      ->required();
  verb.add_option(
      "--alone", o.alone,
      "A trace of one rank of the job without exchange. T_1 (one rank's step) and the times of "
      "layers and gradients come from it. Default: from the job's traces, as an interval.");
  verb.add_option("--add-cost", o.add_cost,
                  "Table of bytes,seconds of an element-wise add, for per-gradient logs.");
  verb.add_option("--step-time", o.step_time,
                  "The step of one device as its source measured it, such as 128ms.")
      ->type_name(kTime);
  add_with_default(verb, "--step-time-covers", o.covers,
                   "What --step-time covers: step or forward_backward.",
                   one_of({"step", "forward_backward"}));
  verb.add_flag("--timeline", o.timeline, "Write the Timeline of the trace instead of a Workload.");
}

// From words to values. What was not given stays absent.
trace::Imported import_files(const ImportOptions& o) {
  trace::ImportOptions options;
  options.timeline = o.timeline;
  options.alone = {o.alone.begin(), o.alone.end()};
  if (!o.add_cost.empty()) options.log.add_cost = o.add_cost;
  if (!o.step_time.empty())
    options.log.step_time_s = parse_option("--step-time", o.step_time, parse_time).value;
  options.log.covers =
      o.covers == "step" ? trace::StepTimeCovers::step : trace::StepTimeCovers::forward_backward;
  return trace::import_files({o.files.begin(), o.files.end()}, options);
}

}  // namespace linerate::verbs
