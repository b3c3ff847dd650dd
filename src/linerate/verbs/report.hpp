// linerate report: one self-contained page from Timelines, what-ifs, advice and evaluations.
#pragma once

#include <string>
#include <vector>

#include "linerate/report/inputs.hpp"
#include "linerate/verbs/caller.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct ReportOptions {
  std::vector<std::string> files;
};

void add_options(CLI::App& verb, ReportOptions& options);
/// Throws InputError naming the file and what it is instead.
report::Inputs report(const ReportOptions& options, const Caller& caller = {});

}  // namespace linerate::verbs
