// linerate import FILE... -o workload.json: traces and per-gradient logs become a Workload.
#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/verbs/option_checks.hpp"

namespace linerate::cli {

void setup_import(CLI::App& app) {
  struct Arguments {
    verbs::ImportOptions options;
    std::string output;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("import", "Turn traces and logs of a job into a Workload.");
  verbs::add_options(*verb, a->options);
  verb->add_option("-o,--output", a->output, "File to write the Workload to.")->required();
  verb->callback([a] {
    verbs::refuse_input_as_output("--output", a->output, a->options.inputs());
    const trace::Imported imported = verbs::import_files(a->options);
    print_notes(imported.notes);  // they come first, as they say what was not known
    if (imported.timeline) return doc::save(*imported.timeline, a->output);
    const doc::Workload& w = *imported.workload;
    doc::save(w, a->output);
    log::info(fmt::format("{}: {} gradients, {}, backward {}{}", a->output, w.gradients.size(),
                          format_size(static_cast<double>(w.gradient_bytes())),
                          format_time(w.backward_s),
                          w.current.empty() ? "" : fmt::format("; in use: {}", w.current)));
  });
}

}  // namespace linerate::cli
