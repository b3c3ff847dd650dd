// linerate export run.json -o trace.json: a Timeline for ui.perfetto.dev.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/log.hpp"
#include "linerate/trace/export/perfetto.hpp"

namespace linerate::cli {

void setup_export(CLI::App& app) {
  struct Options {
    std::string timeline, output;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("export", "Write a Timeline as Perfetto (Chrome trace) JSON.");
  verb->add_option("timeline", o->timeline, "Timeline of a run, a simulation or an import.")
      ->required();
  verb->add_option("-o,--output", o->output, "The trace to write; open it at ui.perfetto.dev.")
      ->required();
  verb->callback([o] {
    refuse_input_as_output("--output", o->output, {o->timeline});
    const doc::Timeline timeline = doc::load_timeline(o->timeline);
    trace::save_perfetto(timeline, o->output);
    log::info(fmt::format("{}: {} events of {} ranks", o->output, timeline.events.size(),
                          timeline.ranks));
  });
}

}  // namespace linerate::cli
