#include "linerate/trace/import_files.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/trace/format.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate::trace {
namespace {

Imported import_traces(const std::vector<std::filesystem::path>& files, bool timeline) {
  Imported imported;
  const Job job = load_job(files);
  if (timeline) {
    imported.timeline = timeline_of(job, files.front());
    imported.notes = job.notes;
  } else {
    const std::string name = files.front().stem().stem().string();
    imported.workload = workload_of(job, name, imported.notes);
  }
  return imported;
}

}  // namespace

Imported import_files(const std::vector<std::filesystem::path>& files,
                      const ImportOptions& options) {
  Input input = Input::open(files.front());
  const Format format = format_of(input.head());
  if (format == Format::per_gradient)
    return {.workload = read_per_gradient_log(input, options.log)};
  if (format == Format::collective_log)
    throw InputError(input.name(),
                     fmt::format("this is a log of collectives, not of a training step; "
                                 "write linerate calibrate --from {} -o cluster.json",
                                 input.name()));
  return import_traces(files, options.timeline);
}

}  // namespace linerate::trace
