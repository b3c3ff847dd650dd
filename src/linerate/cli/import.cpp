// linerate import FILE... -o workload.json: traces and per-gradient logs become a Workload.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>

#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate::cli {
namespace {

struct ImportOptions {
  std::vector<std::string> files;
  std::string output, add_cost, step_time, covers = "step";
  bool timeline = false;
};

std::optional<doc::Workload> import_one(const ImportOptions& o) {
  trace::Input input = trace::Input::open(o.files.front());
  const trace::Format format = trace::format_of(input.head());
  if (format == trace::Format::per_gradient) {
    trace::PerGradientOptions options;
    if (!o.add_cost.empty()) options.add_cost = o.add_cost;
    if (!o.step_time.empty())
      options.step_time_s = parse_option("--step-time", o.step_time, parse_time).value;
    options.covers =
        o.covers == "step" ? trace::StepTimeCovers::step : trace::StepTimeCovers::forward_backward;
    return trace::read_per_gradient_log(input, options);
  }
  if (format == trace::Format::collective_log)
    throw InputError(input.name(),
                     fmt::format("this is a log of collectives, not of a training step; "
                                 "write linerate calibrate --from {} -o cluster.json",
                                 input.name()));
  const trace::Job job = trace::load_job({o.files.begin(), o.files.end()});
  if (o.timeline) {
    doc::save(trace::timeline_of(job, o.files.front()), o.output);
    for (const std::string& note : job.notes) fmt::print(stderr, "note: {}\n", note);
    return std::nullopt;
  }
  std::vector<std::string> said;
  const std::string name = std::filesystem::path(o.files.front()).stem().stem().string();
  const doc::Workload w = trace::workload_of(job, name, said);
  for (const std::string& note : said) fmt::print(stderr, "note: {}\n", note);
  return w;
}

void run_import(const ImportOptions& o) {
  std::vector<std::string> inputs = o.files;
  inputs.push_back(o.add_cost);
  keep_inputs("--output", o.output, inputs);
  const std::optional<doc::Workload> imported = import_one(o);
  if (!imported) return;
  const doc::Workload& w = *imported;
  doc::save(w, o.output);
  log::info(fmt::format("{}: {} gradients, {}, backward {}", o.output, w.gradients.size(),
                        format_size(static_cast<double>(w.gradient_bytes())),
                        format_time(w.backward_s)));
}

}  // namespace

void setup_import(CLI::App& app) {
  const auto o = std::make_shared<ImportOptions>();
  CLI::App* verb = app.add_subcommand("import", "Turn traces and logs into a Workload.");
  verb->add_option("files", o->files,
                   "Trace files (all ranks of one job together) or one per-gradient log.")
      ->required();
  verb->add_option("-o,--output", o->output, "The Workload to write.")->required();
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
