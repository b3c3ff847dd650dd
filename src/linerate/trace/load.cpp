#include "linerate/trace/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "linerate/core/error.hpp"
#include "linerate/trace/collective_log.hpp"
#include "linerate/trace/kineto_job.hpp"
#include "linerate/trace/other_formats.hpp"
#include "linerate/trace/per_gradient.hpp"

namespace linerate::trace {
namespace {

/// What one file holds: a rank of a Kineto trace, joined with its peers later, or a whole job.
struct Loaded {
  std::optional<KinetoTrace> rank;
  std::optional<Job> job;
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

[[noreturn]] void refuse(const std::string& name, Format format) {
  switch (format) {
    case Format::per_gradient:
      throw InputError(name,
                       "a per-gradient log holds no events to explain; write linerate import to "
                       "make a Workload");
    case Format::collective_log:
      throw InputError(
          name, "a log of collectives, not of training; write linerate calibrate --from to fit it");
    case Format::other_document:
      throw InputError(name,
                       "a linerate document, but no timeline; explain reads timelines and traces");
    default:
      throw InputError(
          name,
          "expected a PyTorch, Horovod or Chakra trace or a linerate timeline, found none of them");
  }
}

Loaded read_one(Input& input, const Progress& progress) {
  const Format format = format_of(input.head());
  Loaded loaded;
  switch (format) {
    case Format::kineto: {
      PaddedText text = input.read_all();
      const bool cut = input.truncated();
      loaded.rank = read_kineto(std::move(text), input.name(), progress);
      if (cut)
        loaded.rank->notes.push_back(fmt::format(
            "{}: the gzip stream ends early; events up to there were read", input.name()));
      break;
    }
    case Format::timeline: {
      const PaddedText text = input.read_all();
      loaded.job = job_of(doc::timeline_from_json(std::string(text.view()), input.name()));
      break;
    }
    case Format::horovod:
      loaded.job = read_horovod(input.read_all(), input.name());
      break;
    case Format::host_trace:
      loaded.job = read_host_trace(input.read_all(), input.name());
      break;
    case Format::chakra:
      loaded.job = read_chakra(input.read_all().view(), input.name());
      break;
    case Format::chakra_json:
      loaded.job = read_chakra_json(input.read_all(), input.name());
      break;
    default:
      refuse(input.name(), format);
  }
  if (loaded.job && input.truncated())
    loaded.job->notes.push_back(
        fmt::format("{}: the gzip stream ends early; what came before was read", input.name()));
  return loaded;
}

/// Times since the first event keep doubles and differences small.
void rebase(Job& job) {
  std::int64_t first = INT64_MAX;
  const auto see = [&first](const Span& s) { first = std::min(first, s.start_ns); };
  for (RankActivity& r : job.ranks) {
    for (const Span& s : r.compute) see(s);
    for (const Span& s : r.copies) see(s);
    for (const StepSpan& s : r.steps) see(s.span);
    for (const Communication& c : r.communications) see(c.span);
  }
  if (first == INT64_MAX) return;
  const auto move = [first](Span& s) { s.start_ns -= first, s.end_ns -= first; };
  for (RankActivity& r : job.ranks) {
    r.stamp_ns += first;
    for (Span& s : r.compute) move(s);
    for (Span& s : r.copies) move(s);
    for (StepSpan& s : r.steps) move(s.span);
    for (Communication& c : r.communications) move(c.span);
  }
  job.origin_ns += first;
}

Job join_ranks(std::vector<Loaded> all) {
  if (all.size() == 1 && all.front().job) {
    rebase(*all.front().job);
    return std::move(*all.front().job);
  }
  Job job;
  std::map<int, std::string> seen;
  for (Loaded& l : all) {
    if (!l.rank)
      throw InputError("explain",
                       "one timeline, or the traces of all ranks of one job; found a mixture");
    const KinetoTrace& t = *l.rank;
    if (all.size() > 1) {
      if (t.rank < 0)
        throw InputError(t.source,
                         "which rank? distributedInfo does not say; name the files rank0..., "
                         "rank1..., or worker0...");
      if (const auto [other, fresh] = seen.try_emplace(t.rank, t.source); !fresh)
        throw InputError(t.source,
                         fmt::format("is of rank {}, and so is {}", t.rank, other->second));
    }
    add_rank(t, job);
    l.rank.reset();
  }
  std::sort(job.ranks.begin(), job.ranks.end(),
            [](const RankActivity& a, const RankActivity& b) { return a.rank < b.rank; });
  rebase(job);
  return job;
}

}  // namespace

std::string_view name_of(Format format) {
  static constexpr std::array<std::string_view, 10> kNames = {
      "timeline",         "PyTorch trace",          "PyTorch host execution trace",
      "Horovod timeline", "Chakra execution trace", "Chakra JSON trace",
      "per-gradient log", "collective log",         "linerate document",
      "unknown"};
  return kNames[static_cast<std::size_t>(format)];
}

Format format_of(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos) return Format::unknown;
  if (head[first] == '{' || head[first] == '[') {
    if (contains(head.substr(0, 512), "\"document\"") &&
        contains(head.substr(0, 512), "\"schema\""))
      return contains(head.substr(0, 512), "\"timeline\"") ? Format::timeline
                                                           : Format::other_document;
    if (contains(head, "\"workload_graph\"")) return Format::chakra_json;
    if (contains(head, "\"traceEvents\"")) return Format::kineto;
    if (contains(head, "\"nodes\"") && contains(head, "\"schema\"")) return Format::host_trace;
    if (is_collective_log(head)) return Format::collective_log;
    if (head[first] == '[' &&
        (contains(head, "NEGOTIATE_") || contains(head, "start_time_since_epoch_in_micros")))
      return Format::horovod;
    return Format::kineto;  // distributedInfo and deviceProperties may fill the head; a bare array
                            // of events
  }
  if (is_chakra(head)) return Format::chakra;
  if (is_per_gradient_log(head)) return Format::per_gradient;
  if (is_collective_log(head)) return Format::collective_log;
  return Format::unknown;
}

Job read_job(Input& input) {
  std::vector<Loaded> all;
  all.push_back(read_one(input, {}));
  return join_ranks(std::move(all));
}

Job load_job(const std::vector<std::filesystem::path>& files, const LoadOptions& options) {
  if (files.empty()) throw UsageError("expected at least one trace file");
  std::vector<Loaded> all(files.size());
  std::vector<std::exception_ptr> errors(files.size());
  std::vector<std::size_t> done(files.size());
  std::size_t total = 0;
  for (const auto& f : files) {
    std::error_code ignored;
    const auto size = std::filesystem::file_size(f, ignored);
    total += ignored ? 0 : static_cast<std::size_t>(size);
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < files.size(); i = next++) try {
        Input input = Input::open(files[i]);
        all[i] = read_one(
            input, !options.progress ? Progress{} : [&, i](std::size_t bytes) {
              const std::lock_guard lock(mutex);
              done[i] = bytes;
              std::size_t sum = 0;
              for (const std::size_t d : done) sum += d;
              options.progress(sum, total);
            });
      } catch (...) {
        errors[i] = std::current_exception();
      }
  };
  const std::size_t wanted =
      options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < std::min(wanted, files.size()); ++i) helpers.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
  return join_ranks(std::move(all));
}

}  // namespace linerate::trace
