// linerate export run.json -o trace.json: a Timeline for ui.perfetto.dev.
#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"
#include "linerate/trace/export/perfetto.hpp"
#include "linerate/verbs/option_checks.hpp"

namespace linerate::cli {

void setup_export(CLI::App& app) {
  struct Arguments {
    verbs::ExportOptions options;
    std::string output;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* verb =
      app.add_subcommand("export", "Write a Timeline as a trace for Perfetto (Chrome trace JSON).");
  verbs::add_options(*verb, a->options);
  verb->add_option("-o,--output", a->output, "File to write. Open it at ui.perfetto.dev.")
      ->required();
  verb->callback([a] {
    verbs::refuse_input_as_output("--output", a->output, a->options.files);
    const auto timeline = verbs::export_timeline(a->options);
    trace::save_perfetto(*timeline, a->output);
    log::info(fmt::format("{}: {} events of {} ranks", a->output, timeline->events.size(),
                          timeline->ranks));
  });
}

}  // namespace linerate::cli
