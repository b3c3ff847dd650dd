// linerate report FILE... -o report.html: one self-contained page from Timelines, what-ifs, advice
// and evaluations.
#include "linerate/report/inputs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/command_line.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string output;
};

void run_report(const ReportOptions& options, const std::string& command) {
  refuse_input_as_output("--output", options.output, options.files);
  report::Inputs inputs;
  report::add_files(inputs, options.files);
  report::save_page(inputs, command, std::string(kVersion), options.output);
}

}  // namespace

void setup_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* verb = app.add_subcommand(
      "report",
      "Write one self-contained HTML page from Timelines, what-ifs, advice and evaluations.");
  verb->add_option(
          "files", options->files,
          "Timelines, traces (those of all ranks of one job), whatif --json, advise --json "
          "and evaluate files")
      ->required();
  verb->add_option("-o,--output", options->output, "The page to write")->required();
  verb->callback([options, verb] { run_report(*options, command_line(*verb)); });
}

}  // namespace linerate::cli
