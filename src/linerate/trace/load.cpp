// From files to a job. Files are read by several threads, each by the importer that knows its first
// bytes. Their importer joins them to a job. Then follow the steps that all formats share, in an
// order that matters. Typical times need marks that are joined to steps. How the model is split
// needs the typical gradients.
#include "linerate/trace/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate::trace {
namespace {

/// Reads one file with the importer that knows it. A format that is known and not read is refused
/// with its advice. The head is asked before the file is read, and the whole text after that.
FilePart read_one(InputFile& input, const Progress& progress) {
  const Importer* importer = recognise(input.head()).importer;
  try {
    const auto require_read = [&] {
      if (importer->read == nullptr)
        throw InputError(input.name(), advice_for(*importer, input.name()));
    };
    require_read();
    PaddedText text = input.read_all();
    // A head of 64 KiB may end before the mark of a format, which then claims the whole text.
    for (const Importer& other : importers())
      if (other.claims != nullptr && other.claims(text.view())) importer = &other;
    require_read();
    std::any content = importer->read(std::move(text), input.name(), progress);
    return {input.name(), std::move(content), importer, input.truncated()};
  } catch (const InputError& e) {
    input.rethrow_with_cause(e.what());
  }
}

/// Makes times count from the job's first event; Job::origin_ns says when that was. Sums and
/// differences stay small then.
void rebase(Job& job) {
  std::int64_t first = INT64_MAX;
  for (const RankActivity& r : job.ranks)
    first = std::min(first, hull_of_all(r.compute, r.copies, r.steps, r.communications).start_ns);
  if (first == INT64_MAX) return;
  for (RankActivity& r : job.ranks) {
    r.stamp_ns += first;
    shift(r, -first);
  }
  job.origin_ns += first;
}

/// Files of formats that belong together become one job, as their importers join them.
Job joined_files(std::vector<FilePart> files) {
  const auto join = files.front().importer->join;
  std::vector<std::string> notes;
  for (const FilePart& file : files) {
    if (file.importer->join != join) refuse_mixture();
    if (file.truncated)
      add_note(notes, file.file, "the gzip stream ends early; what came before was read");
  }
  Job job = join(std::move(files));
  job.notes.insert(job.notes.end(), notes.begin(), notes.end());
  return job;
}

Job job_of_files(std::vector<FilePart> files) {
  Job job = joined_files(std::move(files));
  if (job.complete) return job;
  std::ranges::stable_sort(job.ranks, {}, &RankActivity::rank);
  rebase(job);
  find_partial_steps(job);
  join_marks(job);
  find_typical_step(job);
  for (std::string& note : accumulation_in_words(job)) job.notes.push_back(std::move(note));
  job.sharding = sharding_of(job);
  if (std::string none = job.sharding.empty() ? no_exchange_in_words(job) : ""; !none.empty())
    job.notes.push_back(std::move(none));
  if (job.sharding.empty() && !job.sharding_names.empty())
    job.notes.push_back(
        fmt::format("{} sums whole gradients over all ranks and splits nothing, so this is data "
                    "parallelism like DDP's",
                    job.sharding_names.front()));
  if (!job.sharding.empty())
    job.notes.push_back(
        fmt::format("the model is split over ranks: {}. No rank has whole gradients, so whatif and "
                    "advise do not apply, and DDP's bucket rule is not checked",
                    job.sharding));
  return job;
}

std::size_t bytes_on_disk(const std::vector<std::filesystem::path>& files) {
  std::size_t total = 0;
  for (const auto& f : files) {
    std::error_code ignored;
    const auto size = std::filesystem::file_size(f, ignored);
    total += ignored ? 0 : to_index(size);
  }
  return total;
}

/// A file a thread.
std::vector<FilePart> read_files(const std::vector<std::filesystem::path>& files,
                                 const LoadOptions& options) {
  const std::size_t readers = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t total = bytes_on_disk(files);
  std::mutex mutex;
  std::vector<std::size_t> done(files.size());
  std::vector<FilePart> all(files.size());
  side_by_side(files.size(), readers, [&](std::size_t file, std::size_t) {
    // Called every few MB: there a reader learns that it may stop.
    const auto progress = [&, file](std::size_t bytes) {
      const std::lock_guard lock(mutex);
      done[file] = bytes;
      throw_if_stopped();
      if (options.progress)
        options.progress(std::accumulate(done.begin(), done.end(), std::size_t{0}), total);
    };
    InputFile input = InputFile::open(files[file]);
    all[file] = read_one(input, progress);
  });
  return all;
}

}  // namespace

Job read_job(std::span<InputFile> inputs) {
  return job_of_files(mapped(inputs, [](InputFile& input) { return read_one(input, {}); }));
}

Job load_job(const std::vector<std::filesystem::path>& paths, const LoadOptions& options) {
  if (paths.empty()) throw UsageError("expected at least one trace file");
  InputFiles inputs = input_files(paths);
  Job job = job_of_files(read_files(inputs.files, options));
  job.notes.insert(job.notes.begin(), inputs.notes.begin(), inputs.notes.end());
  return job;
}

// The entries of the module for verbs and pages: files in, documents out. Each reads files
// (load.hpp) and makes a Workload (to_workload.hpp), a Timeline (timeline/timeline_job.hpp) or an
// explanation of them.

Imported import_files(const std::vector<std::filesystem::path>& paths,
                      const ImportOptions& options) {
  const std::filesystem::path first = input_files(paths).files.front();
  InputFile input = InputFile::open(first);
  const Importer& importer = *recognise(input.head()).importer;
  if (importer.read_workload != nullptr && !options.alone.empty())
    throw UsageError("--alone goes with the traces of a job; a per-gradient log is of one device");
  if (importer.read_workload != nullptr)
    return {.workload = importer.read_workload(input, options.log)};
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

namespace {

/// With its T_1, and the first of its files.
std::pair<Job, std::filesystem::path> load_with_one_rank(
    const std::vector<std::filesystem::path>& paths) {
  Job job = load_job(paths);
  find_one_rank_time(job, std::nullopt);
  return {std::move(job), input_files(paths).files.front()};
}

}  // namespace

ExplainedTimeline load_explained(const std::vector<std::filesystem::path>& traces) {
  const auto [job, first] = load_with_one_rank(traces);
  return {timeline_of_job(job, first), explain(job)};
}

doc::Timeline load_timeline(const std::vector<std::filesystem::path>& paths) {
  if (paths.size() == 1 && !is_raw_trace(paths.front())) return doc::load_timeline(paths.front());
  const auto [job, first] = load_with_one_rank(paths);
  return timeline_of_job(job, first);
}

}  // namespace linerate::trace
