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
namespace {

struct ImportArguments {
  verbs::ImportOptions options;
  std::string output;
};

// Notes come first: they say what was not known.
void run_import(const ImportArguments& a) {
  verbs::refuse_input_as_output("--output", a.output, a.options.inputs());
  const trace::Imported imported = verbs::import_files(a.options);
  print_notes(imported.notes);
  if (imported.timeline) return doc::save(*imported.timeline, a.output);
  const doc::Workload& w = *imported.workload;
  doc::save(w, a.output);
  log::info(fmt::format("{}: {} gradients, {}, backward {}{}", a.output, w.gradients.size(),
                        format_size(static_cast<double>(w.gradient_bytes())),
                        format_time(w.backward_s),
                        w.current.empty() ? "" : fmt::format("; in use: {}", w.current)));
}

}  // namespace

void setup_import(CLI::App& app) {
  const auto a = std::make_shared<ImportArguments>();
  CLI::App* verb = app.add_subcommand("import", "Turn traces and logs of a job into a Workload.");
  verbs::add_options(*verb, a->options);
  verb->add_option("-o,--output", a->output, "File to write the Workload to.")->required();
  verb->callback([a] { run_import(*a); });
}

}  // namespace linerate::cli
