// linerate import FILE... -o workload.json: traces and per-gradient logs become a Workload.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/import_files.hpp"

namespace linerate::cli {
namespace {

struct ImportArguments {
  std::vector<std::string> files, alone;
  std::string output, add_cost, step_time, covers = "step";
  bool timeline = false;
};

trace::ImportOptions options_of(const ImportArguments& a) {
  trace::ImportOptions options;
  options.timeline = a.timeline;
  options.alone = {a.alone.begin(), a.alone.end()};
  if (!a.add_cost.empty()) options.log.add_cost = a.add_cost;
  if (!a.step_time.empty())
    options.log.step_time_s = parse_option("--step-time", a.step_time, parse_time).value;
  options.log.covers =
      a.covers == "step" ? trace::StepTimeCovers::step : trace::StepTimeCovers::forward_backward;
  return options;
}

void run_import(const ImportArguments& a) {
  std::vector<std::string> inputs = a.files;
  inputs.push_back(a.add_cost);
  inputs.insert(inputs.end(), a.alone.begin(), a.alone.end());
  refuse_input_as_output("--output", a.output, inputs);
  const trace::Imported imported =
      trace::import_files({a.files.begin(), a.files.end()}, options_of(a));
  for (const std::string& note : imported.notes) fmt::print(stderr, "note: {}\n", note);
  if (imported.timeline) return doc::save(*imported.timeline, a.output);
  const doc::Workload& w = *imported.workload;
  doc::save(w, a.output);
  log::info(fmt::format("{}: {} gradients, {}, backward {}{}", a.output, w.gradients.size(),
                        format_size(static_cast<double>(w.gradient_bytes())),
                        format_time(w.backward_s),
                        w.current.empty() ? "" : fmt::format("; in use: {}", w.current)));
}

}  // namespace

void setup_import(CLI::App& app) {
  const auto o = std::make_shared<ImportArguments>();
  CLI::App* verb = app.add_subcommand("import", "Turn traces and logs into a Workload.");
  verb->add_option("files", o->files,
                   "Traces (all ranks of one job together; files, folders, patterns) or one "
                   "per-gradient log.")
      ->required();
  verb->add_option("-o,--output", o->output, "The Workload to write.")->required();
  verb->add_option(
      "--alone", o->alone,
      "A trace of one rank of the job without exchange: T_1 and the times of layers and "
      "gradients are its own. Absent: from the job's traces, as an interval.");
  verb->add_option("--add-cost", o->add_cost,
                   "Table of bytes,seconds of an element-wise add (per-gradient logs).");
  verb->add_option("--step-time", o->step_time,
                   "The one-device step as its source measured it, such as 128ms.");
  verb->add_option("--step-time-covers", o->covers,
                   "What --step-time covers: step or forward_backward.")
      ->check(CLI::IsMember({"step", "forward_backward"}))
      ->capture_default_str();
  verb->add_flag("--timeline", o->timeline,
                 "Write the Timeline of the trace instead of a Workload.");
  verb->callback([o] { run_import(*o); });
}

}  // namespace linerate::cli
