#include "linerate/trace/import_files.hpp"

#include "linerate/trace/explain/bucket_rule.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/input_files.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/timeline/documents.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate::trace {
namespace {

doc::Timeline timeline_of_job(const Job& job, const std::filesystem::path& first) {
  doc::Timeline timeline = timeline_of(job, first.string());
  if (const auto buckets = check_buckets(job)) timeline.strategy = buckets->strategy;
  return timeline;
}

Imported import_traces(const std::vector<std::filesystem::path>& paths,
                       const std::filesystem::path& first, bool timeline) {
  Imported imported;
  const Job job = load_job(paths);
  if (timeline) {
    imported.timeline = timeline_of_job(job, first);
    imported.notes = job.notes;
  } else {
    const std::string name = first.stem().stem().string();
    imported.workload = workload_of(job, name, imported.notes);
  }
  return imported;
}

}  // namespace

Imported import_files(const std::vector<std::filesystem::path>& paths,
                      const ImportOptions& options) {
  const std::vector<std::filesystem::path> files = input_files(paths).files;
  Input input = Input::open(files.front());
  const Importer& importer = *recognise(input.head()).importer;
  if (importer.read_workload != nullptr)
    return {.workload = importer.read_workload(input, options.log)};
  return import_traces(paths, files.front(), options.timeline);
}

bool is_raw_trace(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path) || !std::filesystem::exists(path)) return true;
  Input input = Input::open(path);
  const std::string_view head = input.head();
  return recognise(head).sure && !is_document(Head(head));
}

doc::Timeline load_timeline(const std::vector<std::filesystem::path>& paths) {
  if (paths.size() == 1 && !is_raw_trace(paths.front())) return doc::load_timeline(paths.front());
  const std::vector<std::filesystem::path> files = input_files(paths).files;
  return timeline_of_job(load_job(paths), files.front());
}

}  // namespace linerate::trace
