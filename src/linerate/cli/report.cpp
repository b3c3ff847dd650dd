// linerate report FILE... -o report.html: one self-contained page from Timelines, what-ifs, advice
// and evaluations.
#include "linerate/verbs/verbs.hpp"

#include "linerate/cli/verb.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {

void setup_report(CLI::App& app) {
  const auto [verb, a] = add_verb<Given<verbs::ReportOptions>>(
      app, "report",
      "Write one HTML page with charts from Timelines, predictions, advice and evaluations.");
  verb->add_option("-o,--output", a->output, "File to write the page to.")->required();
  verb->callback([a = a, verb = verb] {
    verbs::refuse_input_as_output("--output", a->output, a->options.files);
    report::save_page(verbs::report(a->options), verbs::command_line(*verb), std::string(kVersion),
                      a->output);
  });
}

}  // namespace linerate::cli
