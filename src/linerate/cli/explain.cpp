// linerate explain FILE...: where a step's time goes, and the verdict.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/progress_line.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/keep_memory.hpp"
#include "linerate/trace/explain/explain_json.hpp"
#include "linerate/trace/explain/explain_text.hpp"
#include "linerate/trace/import_files.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/one_rank_step.hpp"

namespace linerate::cli {
namespace {

struct ExplainOptions {
  std::vector<std::string> files, alone;
  bool json = false;
  trace::Thresholds thresholds;
};

void run_explain(const ExplainOptions& o) {
  keep_freed_memory();  // lists of events grow, and are freed, by the hundred thousand
  trace::LoadOptions load;
  ProgressLine progress;
  load.progress = [&](std::size_t done, std::size_t) {
    progress.show(fmt::format("read {:.0f} MB of JSON", static_cast<double>(done) * 1e-6));
  };
  trace::Job job = trace::load_job({o.files.begin(), o.files.end()}, load);
  const auto alone = trace::load_alone({o.alone.begin(), o.alone.end()});
  progress.clear();
  trace::find_one_rank_time(job, alone);
  const auto [breakdown, verdict] = trace::explain(job, o.thresholds);
  const std::string text =
      o.json ? trace::explain_json(breakdown, verdict) : trace::explain_text(breakdown, verdict);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void setup_explain(CLI::App& app) {
  const auto o = std::make_shared<ExplainOptions>();
  CLI::App* verb =
      app.add_subcommand("explain", "Say where a step's time goes, and what bounds it.");
  verb->add_option("files", o->files,
                   "One timeline, or the traces of all ranks of one job: files, folders, patterns.")
      ->required();
  verb->add_option(
      "--alone", o->alone,
      "A trace of one rank of the job without exchange, for T_1 and the scaling factor; "
      "absent: from the job's traces, as an interval.");
  verb->add_flag("--json", o->json, "Print JSON.");
  verb->add_option("--data-idle", o->thresholds.data_idle,
                   "Input-bound above this share of the step idle while data is loaded.")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--host-idle", o->thresholds.host_idle,
                   "Host-bound above this idle share of the step.")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--exposed", o->thresholds.exposed,
                   "Compute-bound below this exposed share of the step.")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->callback([o] { run_explain(*o); });
}

}  // namespace linerate::cli
