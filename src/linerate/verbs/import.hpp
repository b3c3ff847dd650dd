// linerate import: traces and per-gradient logs become a Workload.
#pragma once

#include <string>
#include <vector>

#include "linerate/trace/import_files.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct ImportOptions {
  std::vector<std::string> files, alone;
  std::string add_cost, step_time, covers = "step";
  bool timeline = false;

  /// The files it names, for refuse_input_as_output().
  std::vector<std::string> inputs() const;
};

void add_options(CLI::App& verb, ImportOptions& options);
/// Throws InputError naming the file and what to do with it instead, UsageError.
trace::Imported import_files(const ImportOptions& options);

}  // namespace linerate::verbs
