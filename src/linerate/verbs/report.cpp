#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>

namespace linerate::verbs {
namespace {

/// Whether it is a document in memory, which is then among `inputs`. Kinds that a page cannot show
/// are refused by find().
bool add_held(report::Inputs& inputs, const std::string& name, const Documents& documents) {
  if (!documents.holds(name)) return false;
  if (documents.is<doc::Predictions>(name))
    inputs.predictions.emplace_back("", *documents.find<doc::Predictions>(name));
  else if (documents.is<doc::Advice>(name))
    inputs.advice.push_back(*documents.find<doc::Advice>(name));
  else {
    const auto timeline = documents.find<doc::Timeline>(name);  // refuses the rest
    inputs.timelines.push_back({timeline->source, timeline->strategy, *timeline});
  }
  return true;
}

}  // namespace

void add_options(CLI::App& verb, ReportOptions& o) {
  verb.add_option("files", o.files,
                  "Timelines, traces (all ranks of one job together), and files of whatif --json, "
                  "advise --json, evaluate and linerate train --losses")
      ->required();
}

// Names of files keep their order, as traces of one job are joined in it.
report::Inputs report(const ReportOptions& o, const Caller& caller) {
  report::Inputs inputs;
  std::vector<std::string> files;
  for (const std::string& file : o.files)
    if (!add_held(inputs, file, caller.documents)) files.push_back(file);
  report::add_files(inputs, files);
  return inputs;
}

}  // namespace linerate::verbs
