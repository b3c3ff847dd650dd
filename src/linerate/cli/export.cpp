// linerate export run.json -o trace.json: a Timeline for ui.perfetto.dev.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/log.hpp"
#include "linerate/trace/export/perfetto.hpp"
#include "linerate/trace/import_files.hpp"

namespace linerate::cli {

void setup_export(CLI::App& app) {
  struct Options {
    std::vector<std::string> files;
    std::string output;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("export", "Write a Timeline as Perfetto (Chrome trace) JSON.");
  verb->add_option("files", o->files,
                   "A Timeline of a run, a simulation or an import, or the traces of one job.")
      ->required();
  verb->add_option("-o,--output", o->output, "The trace to write; open it at ui.perfetto.dev.")
      ->required();
  verb->callback([o] {
    refuse_input_as_output("--output", o->output, o->files);
    const doc::Timeline timeline = trace::load_timeline({o->files.begin(), o->files.end()});
    trace::save_perfetto(timeline, o->output);
    log::info(fmt::format("{}: {} events of {} ranks", o->output, timeline.events.size(),
                          timeline.ranks));
  });
}

}  // namespace linerate::cli
