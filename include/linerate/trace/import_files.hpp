// What `linerate import` reads: traces of one job, or a per-gradient log.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/trace/explain/explanation.hpp"
#include "linerate/trace/job/job.hpp"
#include "linerate/trace/per_gradient/per_gradient_options.hpp"

namespace linerate::trace {

struct ImportOptions {
  PerGradientOptions log;                         // of a per-gradient log alone
  bool timeline = false;                          // the Timeline of a trace instead of its Workload
  std::vector<std::filesystem::path> alone = {};  // one rank of the job without exchange
};

/// One of the two documents.
struct Imported {
  std::optional<doc::Workload> workload = {};
  std::optional<doc::Timeline> timeline = {};
  std::vector<std::string> notes = {};  // what was missing or assumed, for people
};

/// `paths`: files, folders of traces and patterns. Throws InputError naming the file and what to do
/// with it instead.
Imported import_files(const std::vector<std::filesystem::path>& paths,
                      const ImportOptions& options = {});

/// A recording of one rank of a job without exchange; nothing if no path is given.
std::optional<Job> load_alone(const std::vector<std::filesystem::path>& paths);
/// A Timeline: the document if `paths` is one, else that of the traces of one job, with what it
/// shows of the strategy in use.
doc::Timeline load_timeline(const std::vector<std::filesystem::path>& paths);

/// Traces as one Timeline, with what explain says of the traces themselves: a Timeline keeps less.
struct ExplainedTimeline {
  doc::Timeline timeline;
  Explanation explanation;
};
ExplainedTimeline load_explained(const std::vector<std::filesystem::path>& traces);
/// Do these first bytes of a file say that it is a trace (and no document of linerate's)?
bool is_raw_trace(const std::filesystem::path& path);

}  // namespace linerate::trace
