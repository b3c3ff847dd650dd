// linerate import FILE... -o workload.json: traces and per-gradient logs become a Workload.
#include "linerate/cli/verb.hpp"
#include "linerate/core/text.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::cli {

void setup_import(CLI::App& app) {
  const auto [verb, a] = add_verb<Given<verbs::ImportOptions>>(
      app, "import", "Turn traces and logs of a job into a Workload.");
  verb->add_option("-o,--output", a->output, "File to write the Workload to.")->required();
  verb->callback([a = a] {
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
