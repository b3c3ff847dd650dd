// What is made of traces: explain, import and export.
#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate::verbs {
namespace {

// A Timeline in memory or on disk is a job by itself. Traces are joined: each rank wrote its own.
trace::Job job_of(const ExplainOptions& o, const Caller& caller) {
  for (const std::string& file : o.files)
    if (const auto timeline = caller.documents.find<doc::Timeline>(file)) {
      if (o.files.size() > 1)
        throw UsageError("a Timeline is explained alone; found " + std::to_string(o.files.size()) +
                         " files");
      return trace::job_of(*timeline);
    }
  trace::LoadOptions load;
  load.progress = [&](std::size_t done, std::size_t) {
    caller.show(fmt::format("read {:.0f} MB of JSON", static_cast<double>(done) * 1e-6));
  };
  return trace::load_job({o.files.begin(), o.files.end()}, load);
}

}  // namespace

void add_options(CLI::App& verb, ExplainOptions& o) {
  verb.add_option("files", o.files,
                  "One Timeline, or the traces of all ranks of one job: files, folders, patterns.")
      ->required();
  verb.add_option("--alone", o.alone,
                  "A trace of one rank of the job without exchange, for T_1 (one rank's step) and "
                  "the scaling factor. Default: T_1 comes from the job's traces, as an interval.");
  add_with_default(verb, "--data-idle", o.thresholds.data_idle,
                   "The job is input-bound if the device is idle for more than this share of the "
                   "step while data is loaded.",
                   between(0.0, 1.0));
  add_with_default(
      verb, "--host-idle", o.thresholds.host_idle,
      "The job is host-bound if the device is idle for more than this share of the step.",
      between(0.0, 1.0));
  add_with_default(
      verb, "--exposed", o.thresholds.exposed,
      "The job is compute-bound if exposed communication is less than this share of the step.",
      between(0.0, 1.0));
}

// Python's Ctrl-C is looked for between the parts that take time.
Explained explain(const ExplainOptions& o, const Caller& caller) {
  Explained explained{o.files.front(), job_of(o, caller), {}};
  const auto alone = trace::load_alone({o.alone.begin(), o.alone.end()});
  throw_if_stopped();
  trace::find_one_rank_time(explained.job, alone);
  throw_if_stopped();
  explained.explanation = trace::explain(explained.job, o.thresholds);
  return explained;
}

doc::Timeline timeline_of(const Explained& explained) {
  return trace::timeline_of_job(explained.job, explained.source);
}

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
  trace::PerGradientOptions& log = o.how.log;
  const auto seconds_of = [](const std::string& text) { return parse_time(text).value; };
  add_parsed(verb, "--step-time", log.step_time_s, seconds_of,
             "The step of one device as its source measured it, such as 128ms.")
      ->type_name(kTime);
  const auto covers_of = [](const std::string& text) {
    return text == "step" ? trace::StepTimeCovers::step : trace::StepTimeCovers::forward_backward;
  };
  add_parsed(verb, "--step-time-covers", log.covers, covers_of,
             "What --step-time covers: step or forward_backward.")
      ->check(one_of({"step", "forward_backward"}))
      ->default_str("step");
  verb.add_flag("--timeline", o.how.timeline,
                "Write the Timeline of the trace instead of a Workload.");
}

trace::Imported import_files(const ImportOptions& o) {
  trace::ImportOptions how = o.how;
  how.alone = {o.alone.begin(), o.alone.end()};
  if (!o.add_cost.empty()) how.log.add_cost = o.add_cost;
  return trace::import_files({o.files.begin(), o.files.end()}, how);
}

void add_options(CLI::App& verb, ExportOptions& o) {
  verb.add_option("files", o.files,
                  "A Timeline of a run, a simulation or an import, or the traces of one job.")
      ->required();
}

// One name may be a document in memory; several are traces of one job.
std::shared_ptr<const doc::Timeline> export_timeline(const ExportOptions& o, const Caller& caller) {
  if (o.files.size() == 1) return timeline_of(o.files.front(), caller);
  return std::make_shared<doc::Timeline>(trace::load_timeline({o.files.begin(), o.files.end()}));
}

}  // namespace linerate::verbs
