// linerate export run.json -o trace.json: a Timeline for ui.perfetto.dev.
#include "linerate/cli/verb.hpp"
#include "linerate/trace/export/perfetto.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::cli {

void setup_export(CLI::App& app) {
  const auto [verb, a] = add_verb<Given<verbs::ExportOptions>>(
      app, "export", "Write a Timeline as a trace for Perfetto (Chrome trace JSON).");
  verb->add_option("-o,--output", a->output, "File to write. Open it at ui.perfetto.dev.")
      ->required();
  verb->callback([a = a] {
    verbs::refuse_input_as_output("--output", a->output, a->options.files);
    const auto timeline = verbs::export_timeline(a->options);
    trace::save_perfetto(*timeline, a->output);
    log::info(fmt::format("{}: {} events of {} ranks", a->output, timeline->events.size(),
                          timeline->ranks));
  });
}

}  // namespace linerate::cli
