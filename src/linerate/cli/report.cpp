// linerate report FILE... -o report.html: one self-contained page from Timelines, what-ifs, advice
// and evaluations.
#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {
namespace {

struct ReportArguments {
  verbs::ReportOptions options;
  std::string output;
};

void run_report(const ReportArguments& a, const std::string& command) {
  verbs::refuse_input_as_output("--output", a.output, a.options.files);
  report::save_page(verbs::report(a.options), command, std::string(kVersion), a.output);
}

}  // namespace

void setup_report(CLI::App& app) {
  const auto a = std::make_shared<ReportArguments>();
  CLI::App* verb = app.add_subcommand(
      "report",
      "Write one HTML page with charts from Timelines, predictions, advice and evaluations.");
  verbs::add_options(*verb, a->options);
  verb->add_option("-o,--output", a->output, "File to write the page to.")->required();
  verb->callback([a, verb] { run_report(*a, verbs::command_line(*verb)); });
}

}  // namespace linerate::cli
