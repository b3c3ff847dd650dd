// The entries of the module for verbs and pages: files in, documents out. Each reads files
// (load.hpp) and makes a Workload (to_workload.hpp), a Timeline (timeline/timeline_job.hpp) or an
// explanation of them.
#include "linerate/trace/import_files.hpp"

#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/trace/explain/bucket_rule.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/input_files.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/one_rank_step.hpp"
#include "linerate/trace/timeline/documents.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate::trace {
namespace {

Imported import_traces(const std::vector<std::filesystem::path>& paths,
                       const std::filesystem::path& first, const ImportOptions& options) {
  Imported imported;
  Job job = load_job(paths);
  const std::optional<Job> alone = load_alone(options.alone);
  if (options.timeline) {
    find_one_rank_time(job, alone);
    imported.timeline = timeline_of_job(job, first);
    imported.notes = job.notes;
  } else {
    const std::string name = first.stem().stem().string();
    imported.workload = workload_of(std::move(job), name, imported.notes, alone);
  }
  return imported;
}

}  // namespace

Imported import_files(const std::vector<std::filesystem::path>& paths,
                      const ImportOptions& options) {
  const std::vector<std::filesystem::path> files = input_files(paths).files;
  InputFile input = InputFile::open(files.front());
  const Importer& importer = *recognise(input.head()).importer;
  if (importer.read_workload != nullptr && !options.alone.empty())
    throw UsageError("--alone goes with the traces of a job; a per-gradient log is of one device");
  if (importer.read_workload != nullptr)
    return {.workload = importer.read_workload(input, options.log)};
  return import_traces(paths, files.front(), options);
}

doc::Timeline timeline_of_job(const Job& job, const std::filesystem::path& source) {
  doc::Timeline timeline = timeline_of(job, source.string());
  if (const auto buckets = check_buckets(job)) timeline.strategy = buckets->strategy;
  return timeline;
}

std::optional<Job> load_alone(const std::vector<std::filesystem::path>& paths) {
  return paths.empty() ? std::nullopt : std::optional(load_job(paths));
}

bool is_raw_trace(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path) || !std::filesystem::exists(path)) return true;
  InputFile input = InputFile::open(path);
  const std::string_view head = input.head();
  return recognise(head).sure && !is_document(Head(head));
}

ExplainedTimeline load_explained(const std::vector<std::filesystem::path>& traces) {
  const std::vector<std::filesystem::path> files = input_files(traces).files;
  Job job = load_job(traces);
  find_one_rank_time(job, std::nullopt);
  return {timeline_of_job(job, files.front()), explain(job)};
}

doc::Timeline load_timeline(const std::vector<std::filesystem::path>& paths) {
  if (paths.size() == 1 && !is_raw_trace(paths.front())) return doc::load_timeline(paths.front());
  const std::vector<std::filesystem::path> files = input_files(paths).files;
  Job job = load_job(paths);
  find_one_rank_time(job, std::nullopt);
  return timeline_of_job(job, files.front());
}

}  // namespace linerate::trace
