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
  std::string title;                // of the page; empty: its only section's, or "linerate report"
  std::vector<std::string> files;   // what was read, for the page's foot
  std::vector<doc::Advice> advice;  // a section each
  std::vector<doc::Evaluation> evaluations;                           // a section each
  std::vector<std::pair<std::string, doc::Predictions>> predictions;  // file or "", entries
  std::vector<NamedTimeline> timelines;                               // drawn side by side
  std::vector<NamedLosses> losses;                                    // drawn together
};

/// Reads one text: a Timeline, the output of `whatif --json`, of `advise --json` or of `evaluate`
/// as JSON, or the losses of `train --losses` as CSV. Throws InputError naming the file and what it
/// is instead.
void add_document(Inputs& inputs, const std::string& text, const std::string& file);

/// Reads files: texts of these kinds, and traces (files, folders, patterns), which together
/// are one job and become one Timeline.
void add_files(Inputs& inputs, const std::vector<std::string>& files);

/// First the job before and after a change, if there are both; then advice, evaluations, what-ifs,
/// timelines.
[[nodiscard]] Page page_of(const Inputs& inputs, const std::string& command,
                           const std::string& version);
/// Writes that page.
void save_page(const Inputs& inputs, const std::string& command, const std::string& version,
               const std::filesystem::path& path);

}  // namespace linerate::report
