// Any trace or timeline file, or all ranks of one job together, recognised by content and read in
// parallel.
// Thread safety: values.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/job/job.hpp"
#include "linerate/trace/per_gradient/per_gradient_options.hpp"

namespace linerate::trace {

/// How files are read.
struct LoadOptions {
  /// Called with bytes done and bytes in all, from any thread, one call at a time.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

/// Reads the traces of one job. Throws InputError naming the file.
///
/// `paths`: files, folders and patterns with *, ? or [...]. A folder stands for the traces that lie
/// in it, and not in folders inside it.
///
/// Memory: below 2.5 times the decompressed size of the files that are read at once, one for each
/// thread. A file takes its text, the parser's index (0.3 to 1 times the text in real traces) and
/// the kept events (0.2 times).
[[nodiscard]] Job load_job(const std::vector<std::filesystem::path>& paths,
                           const LoadOptions& options = {});

// What `linerate import` reads: traces of one job, or a per-gradient log.

/// What to make of the files.
struct ImportOptions {
  PerGradientOptions log;                         // of a per-gradient log alone
  bool timeline = false;                          // the Timeline of a trace instead of its Workload
  std::vector<std::filesystem::path> alone = {};  // one rank of the job without exchange
};

/// One of the two documents.
struct Imported {
  std::optional<doc::Workload> workload = {};  // of traces or a log
  std::optional<doc::Timeline> timeline = {};  // if it was asked for
  std::vector<std::string> notes = {};         // what was missing or assumed, for people
};

/// `paths`: files, folders of traces and patterns. Throws InputError naming the file and what to do
/// with it instead.
[[nodiscard]] Imported import_files(const std::vector<std::filesystem::path>& paths,
                                    const ImportOptions& options = {});

/// A recording of one rank of a job without exchange; nothing if no path is given.
[[nodiscard]] std::optional<Job> load_alone(const std::vector<std::filesystem::path>& paths);
/// The Timeline of a job that was read from `source`, with what it shows of the strategy in use.
[[nodiscard]] doc::Timeline timeline_of_job(const Job& job, const std::filesystem::path& source);
/// A Timeline: the document if `paths` is one, else that of the traces of one job, with what it
/// shows of the strategy in use.
[[nodiscard]] doc::Timeline load_timeline(const std::vector<std::filesystem::path>& paths);

/// Traces as one Timeline, with what explain says of the traces themselves: a Timeline keeps less.
struct ExplainedTimeline {
  doc::Timeline timeline;   // the tasks
  Explanation explanation;  // of the traces that it was made from
};
/// Reads and explains the traces of one job. Throws InputError.
[[nodiscard]] ExplainedTimeline load_explained(const std::vector<std::filesystem::path>& traces);
/// Do these first bytes of a file say that it is a trace (and no document of linerate's)?
[[nodiscard]] bool is_raw_trace(const std::filesystem::path& path);

}  // namespace linerate::trace
