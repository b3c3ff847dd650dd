// linerate export: a Timeline for ui.perfetto.dev.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "linerate/verbs/caller.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct ExportOptions {
  std::vector<std::string> files;
};

void add_options(CLI::App& verb, ExportOptions& options);
/// What trace::save_perfetto() writes. Throws InputError, UsageError.
std::shared_ptr<const doc::Timeline> export_timeline(const ExportOptions& options,
                                                     const Caller& caller = {});

}  // namespace linerate::verbs
