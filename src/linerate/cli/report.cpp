// linerate report FILE... -o report.html: one self-contained page from Timelines, what-ifs, advice
// and evaluations.
#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {

void setup_report(CLI::App& app) {
  struct Arguments {
    verbs::ReportOptions options;
    std::string output;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand(
      "report",
      "Write one HTML page with charts from Timelines, predictions, advice and evaluations.");
  verbs::add_options(*verb, a->options);
  verb->add_option("-o,--output", a->output, "File to write the page to.")->required();
  verb->callback([a, verb] {
    verbs::refuse_input_as_output("--output", a->output, a->options.files);
    report::save_page(verbs::report(a->options), verbs::command_line(*verb), std::string(kVersion),
                      a->output);
  });
}

}  // namespace linerate::cli
