// The documents that a page is made from.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "linerate/doc/advice.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/report/named_timeline.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

/// Sorted by kind; within a kind in the order added.
struct Inputs {
  std::string title;  // of the page; empty: its only section's, or "linerate report"
  std::vector<std::string> files;
  std::vector<doc::Advice> advice;
  std::vector<doc::Evaluation> evaluations;
  std::vector<std::pair<std::string, doc::Predictions>> predictions;  // file or "", entries
  std::vector<NamedTimeline> timelines;
};

/// Reads one JSON text: a Timeline, the output of `whatif --json`, of `advise --json` or
/// of `evaluate`. Throws
/// InputError naming the file and what it is instead.
void add_document(Inputs& inputs, const std::string& text, const std::string& file);

/// Reads files: JSON texts of these kinds, and traces (files, folders, patterns), which together
/// are one job and become one Timeline.
void add_files(Inputs& inputs, const std::vector<std::string>& files);

/// Advice first, then evaluations, what-ifs, timelines.
Page page_of(const Inputs& inputs, const std::string& command, const std::string& version);
/// Writes that page.
void save_page(const Inputs& inputs, const std::string& command, const std::string& version,
               const std::filesystem::path& path);

}  // namespace linerate::report
