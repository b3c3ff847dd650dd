#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>

#include "linerate/trace/load.hpp"

namespace linerate::verbs {

void add_options(CLI::App& verb, ExportOptions& o) {
  verb.add_option("files", o.files,
                  "A Timeline of a run, a simulation or an import, or the traces of one job.")
      ->required();
}

// One name may be a document in memory; several are traces of one job.
std::shared_ptr<const doc::Timeline> export_timeline(const ExportOptions& o, const Caller& caller) {
  if (o.files.size() == 1) return timeline_of(o.files.front(), caller);
  return std::make_shared<doc::Timeline>(trace::load_timeline({o.files.begin(), o.files.end()}));
}

}  // namespace linerate::verbs
