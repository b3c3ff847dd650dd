#include "linerate/trace/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <variant>

#include "linerate/core/error.hpp"
#include "linerate/trace/ascend/ascend.hpp"
#include "linerate/trace/chakra/chakra.hpp"
#include "linerate/trace/horovod/horovod_timeline.hpp"
#include "linerate/trace/host_trace/host_trace.hpp"
#include "linerate/trace/input_files.hpp"
#include "linerate/trace/job/cycles.hpp"
#include "linerate/trace/job/one_job.hpp"
#include "linerate/trace/job/sharding.hpp"
#include "linerate/trace/job/typical_step.hpp"
#include "linerate/trace/kineto/kineto_job.hpp"
#include "linerate/trace/kineto/kineto_reader.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"

namespace linerate::trace {
namespace {

/// What one file holds: a part of a job that is joined with the others later, or a whole job.
using Loaded = std::variant<std::monostate, KinetoTrace, HostTrace, ChakraTrace, ChakraGroups, Job>;

std::vector<std::string>* notes_of(Loaded& loaded) {
  return std::visit(
      [](auto& part) -> std::vector<std::string>* {
        if constexpr (requires { part.notes; })
          return &part.notes;
        else
          return nullptr;
      },
      loaded);
}

Loaded read_format(Input& input, Format format, const Progress& progress) {
  const std::string& name = input.name();
  switch (format) {
    case Format::kineto: {
      PaddedText text = input.read_all();
      if (is_ascend(text.view())) return read_ascend(std::move(text), name);
      return read_kineto(std::move(text), name, progress);
    }
    case Format::timeline:
      return job_of(doc::timeline_from_json(std::string(input.read_all().view()), name));
    case Format::horovod:
      return read_horovod(input.read_all(), name);
    case Format::host_trace:
      return read_host_trace(input.read_all(), name);
    case Format::chakra:
      return read_chakra(input.read_all().view(), name);
    case Format::chakra_json:
      return read_chakra_json(input.read_all(), name);
    case Format::chakra_groups:
      return read_chakra_groups(input.read_all(), name);
    default:
      throw InputError(name, std::string(advice_for(format)));
  }
}

Loaded read_one(Input& input, const Progress& progress) {
  const Format format = format_of(input.head());
  try {
    Loaded loaded = read_format(input, format, progress);
    if (std::vector<std::string>* notes = notes_of(loaded); notes && input.truncated())
      notes->push_back(
          fmt::format("{}: the gzip stream ends early; what came before was read", input.name()));
    return loaded;
  } catch (const InputError& e) {
    input.rethrow_with_cause(e.what());
  }
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
  for (RankActivity& r : job.ranks) {
    r.stamp_ns += first;
    shift(r, -first);
  }
  job.origin_ns += first;
}

/// Files of one kind; more than one must say its rank.
template <typename Part>
class RankFiles {
 public:
  std::vector<Part> parts;

  void check(const std::function<int(const Part&)>& rank_of,
             const std::function<const std::string&(const Part&)>& source_of,
             bool may_repeat = false) const {
    if (parts.size() < 2) return;
    std::map<int, std::string> seen;
    for (const Part& p : parts) {
      const int rank = rank_of(p);
      if (rank < 0)
        throw InputError(source_of(p),
                         "expected its rank in distributedInfo or in the file name, found neither; "
                         "name the files rank0..., rank1..., or worker0...");
      if (const auto [other, fresh] = seen.try_emplace(rank, source_of(p)); !fresh && !may_repeat)
        throw InputError(source_of(p),
                         fmt::format("is of rank {}, and so is {}", rank, other->second));
    }
  }
};

/// The heads of two files of one job say the same.
void require_same_head(const KinetoTrace& first, const KinetoTrace& other) {
  const auto differ = [&](const char* what, const auto& a, const auto& b) {
    throw InputError(other.source,
                     fmt::format("is of a job with {} {}, and {} of one with {}: give "
                                 "the traces of one job",
                                 what, b, first.source, a));
  };
  if (first.world_size > 0 && other.world_size > 0 && first.world_size != other.world_size)
    differ("ranks:", first.world_size, other.world_size);
  if (!first.backend.empty() && !other.backend.empty() && first.backend != other.backend)
    differ("back end", first.backend, other.backend);
}

/// Traces without a rank that show no job around them are cycles of one process.
void number_lone_process(std::vector<KinetoTrace>& traces) {
  const bool lone = std::all_of(traces.begin(), traces.end(), [](const KinetoTrace& t) {
    return t.rank < 0 && t.world_size <= 1 && t.args.empty() && t.marks.empty();
  });
  if (traces.size() > 1 && lone)
    for (KinetoTrace& t : traces) t.rank = 0;
}

/// Everything that was read, by kind.
struct Parts {
  RankFiles<KinetoTrace> kineto;
  RankFiles<HostTrace> hosts;
  RankFiles<ChakraTrace> chakra;
  ChakraGroups groups;
  std::vector<Job> jobs;

  void check() const {
    kineto.check([](const KinetoTrace& t) { return t.rank; },
                 [](const KinetoTrace& t) -> const std::string& { return t.source; }, true);
    for (const KinetoTrace& t : kineto.parts) require_same_head(kineto.parts.front(), t);
    hosts.check([](const HostTrace& t) { return t.rank; },
                [](const HostTrace& t) -> const std::string& { return t.source; });
    chakra.check([](const ChakraTrace& t) { return t.rank.rank; },
                 [](const ChakraTrace& t) -> const std::string& { return t.rank.source; });
  }
};

/// A host execution trace belongs to the PyTorch trace of its rank; one of each belong together.
void join_hosts(RankFiles<HostTrace>& hosts, RankFiles<KinetoTrace>& traces) {
  for (const HostTrace& h : hosts.parts) {
    const bool pair = hosts.parts.size() == 1 && traces.parts.size() == 1;
    const auto found =
        std::find_if(traces.parts.begin(), traces.parts.end(), [&](const KinetoTrace& t) {
          return t.rank == h.rank || (pair && (t.rank < 0 || h.rank < 0));
        });
    if (found == traces.parts.end())
      throw InputError(
          h.source, fmt::format("a host execution trace of rank {}, of which there is no PyTorch "
                                "trace here; name the files of one rank rank0..., ...",
                                h.rank < 0 ? "unknown" : std::to_string(h.rank)));
    join_host(h, *found);
  }
}

Job job_of(Parts parts) {
  const int kinds = !parts.kineto.parts.empty() + !parts.chakra.parts.empty() +
                    (parts.kineto.parts.empty() && !parts.hosts.parts.empty()) +
                    static_cast<int>(parts.jobs.size());
  if (kinds > 1 || (!parts.kineto.parts.empty() && !parts.groups.empty()))
    throw UsageError(
        "expected one timeline, or the traces of all ranks of one job in one format (with their "
        "host execution traces, or their process groups), found a mixture");
  if (!parts.jobs.empty()) return std::move(parts.jobs.front());
  number_lone_process(parts.kineto.parts);
  parts.check();
  if (!parts.chakra.parts.empty()) return join_chakra(std::move(parts.chakra.parts), parts.groups);
  if (parts.kineto.parts.empty()) return job_of(parts.hosts.parts);
  join_hosts(parts.hosts, parts.kineto);
  Job job;
  for (KinetoTrace& t : parts.kineto.parts) {
    add_rank(t, job);
    t = KinetoTrace{};  // ranks are many and large
  }
  join_cycles(job);
  require_one_job(job);
  return job;
}

Job join_files(std::vector<Loaded> all, const std::vector<std::string>& names) {
  Parts parts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (auto* t = std::get_if<KinetoTrace>(&all[i]))
      parts.kineto.parts.push_back(std::move(*t));
    else if (auto* h = std::get_if<HostTrace>(&all[i]))
      parts.hosts.parts.push_back(std::move(*h));
    else if (auto* c = std::get_if<ChakraTrace>(&all[i]))
      parts.chakra.parts.push_back(std::move(*c));
    else if (auto* j = std::get_if<Job>(&all[i]))
      parts.jobs.push_back(std::move(*j));
    else if (auto* g = std::get_if<ChakraGroups>(&all[i]))
      parts.groups.merge(*g);
    all[i] = std::monostate{};
  }
  if (parts.kineto.parts.empty() && parts.hosts.parts.empty() && parts.chakra.parts.empty() &&
      parts.jobs.empty())
    throw InputError(names.front(), std::string(advice_for(Format::chakra_groups)));
  Job job = job_of(std::move(parts));
  std::stable_sort(job.ranks.begin(), job.ranks.end(),
                   [](const RankActivity& a, const RankActivity& b) { return a.rank < b.rank; });
  rebase(job);
  find_typical_step(job);
  job.sharding = sharding_of(job);
  if (!job.sharding.empty())
    job.notes.push_back(
        fmt::format("the model is split over ranks: {}. No rank has whole gradients, so whatif and "
                    "advise do not apply; DDP's bucket rule is not asked",
                    job.sharding));
  return job;
}

}  // namespace

Job read_job(std::span<Input> inputs) {
  std::vector<Loaded> all;
  std::vector<std::string> names;
  for (Input& input : inputs) {
    all.push_back(read_one(input, {}));
    names.push_back(input.name());
  }
  return join_files(std::move(all), names);
}

Job load_job(const std::vector<std::filesystem::path>& paths, const LoadOptions& options) {
  if (paths.empty()) throw UsageError("expected at least one trace file");
  InputFiles inputs = input_files(paths);
  const std::vector<std::filesystem::path>& files = inputs.files;
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
  std::vector<std::string> names;
  for (const auto& f : files) names.push_back(f.string());
  Job job = join_files(std::move(all), names);
  job.notes.insert(job.notes.begin(), inputs.notes.begin(), inputs.notes.end());
  return job;
}

}  // namespace linerate::trace
