// linerate report FILE... -o report.html: one self-contained page from Timelines, what-ifs and
// advice.
#include "linerate/report/inputs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "linerate/cli/breakdown_table.hpp"
#include "linerate/cli/command_line.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/file.hpp"

namespace linerate::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string output;
};

void run_report(const ReportOptions& options, const std::string& command) {
  keep_inputs("--output", options.output, options.files);
  report::Inputs inputs;
  for (const std::string& file : options.files) {
    report::add_document(inputs, read_file(file), file);
  }
  for (report::NamedTimeline& t : inputs.timelines)
    t.breakdown = breakdown_table(t.timeline, std::filesystem::path(t.file).stem().string());
  write_file_atomically(options.output,
                        report::to_html(report::page_of(inputs, command, LINERATE_VERSION)));
}

}  // namespace

void setup_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* verb = app.add_subcommand(
      "report", "Write one self-contained HTML page from Timelines, what-ifs and advice.");
  verb->add_option("files", options->files, "Timelines, whatif --json and advise --json files")
      ->required();
  verb->add_option("-o,--output", options->output, "The page to write")->required();
  verb->callback([options, verb] { run_report(*options, command_line(*verb)); });
}

}  // namespace linerate::cli
