// Reads one file. If that finds damage, broken places known from real files are mended, and the
// file is read again. A file that is no trace is refused by name. Notes say which events were left
// out.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/job/periods.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {
namespace {

void note_rejects(KinetoTrace& t) {
  const auto note = [&t](std::size_t n, const char* what) {
    if (n > 0) add_note(t.notes, t.source, "{} events {}; they are left out", n, what);
  };
  note(t.without_duration, "have no \"dur\"");
  note(t.bad_time, "have a \"ts\" or \"dur\" that is no number");
  note(t.absurd, "last longer than a day, less than nothing, or lie beyond 64 bits");
}

/// Steps in which an optimizer stepped.
void mark_updates(KinetoTrace& t) {
  for (const KinetoEvent& op : t.ops) {
    const NameInfo& name = t.names[op.name];
    if (name.kind != NameKind::optimizer || !name.text.starts_with("Optimizer.step#")) continue;
    for (StepSpan& step : t.steps)
      step.updates |= op.span.start_ns >= step.span.start_ns && op.span.start_ns < step.span.end_ns;
  }
}

/// By mark of a step, how many things began in it: operators, annotations of communication and
/// optimizers, launches of device events. If no launch was recorded, the device events themselves
/// count.
std::vector<double> work_of_marks(const KinetoTrace& t) {
  std::vector<const StepSpan*> marks;
  for (const StepSpan& s : t.steps) marks.push_back(&s);
  std::ranges::sort(marks, {}, [](const StepSpan* s) { return std::pair(s->span, s); });
  std::vector<double> work(marks.size(), 0);
  const auto count = [&](std::int64_t time) {
    const StepSpan* const* mark = last_begun(marks, time);
    if (mark != nullptr && time < (*mark)->span.end_ns) ++work[to_index(*mark - t.steps.data())];
  };
  for (const KinetoEvent& op : t.ops)
    if (const NameKind kind = t.names[op.name].kind;
        kind != NameKind::step && kind != NameKind::loading)
      count(op.span.start_ns);
  for (const KinetoEvent& m : t.marks) count(m.span.start_ns);
  for (const KinetoEvent& e : t.device)
    if (t.launches.empty())
      count(e.span.start_ns);
    else if (const KinetoEvent* launch = t.launch_of(e))
      count(launch->span.start_ns);
  return work;
}

/// Finds marks in which nothing of a step ran. step() after the last pass of a loop leaves one,
/// with an operator or two of what comes after the loop. The limit is 2 % of the median mark's
/// count. Without a record of the host, which may be steps ahead, the mark must be short as well.
void find_empty_marks(KinetoTrace& t) {
  constexpr double kNothing = 0.02;  // of what the median mark holds
  const std::vector<double> work = work_of_marks(t);
  if (work.empty() || *std::ranges::max_element(work) == 0) return;
  const double least = std::floor(kNothing * median(work));
  const bool host = !t.ops.empty() || !t.launches.empty();
  const std::vector<double> lengths =
      mapped(t.steps, [](const StepSpan& s) { return static_cast<double>(s.span.length()); });
  const double most = host ? HUGE_VAL : kNothing * median(lengths);
  for (std::size_t i = 0; i < work.size(); ++i)
    t.steps[i].nothing_ran = work[i] <= least && lengths[i] <= most;
}

/// If the strict parser stopped, the broken places known from real files are mended and the file is
/// read again.
KinetoTrace mended(PaddedText& text, const std::string& name, const Progress& progress) {
  const Repairs repairs = repair_json(text);
  KinetoTrace trace = scan_kineto(text, name, progress);
  if (trace.end == ScanEnd::no_events)
    throw InputError(name,
                     fmt::format("no \"traceEvents\" in it, and broken JSON: {}", repairs.text()));
  if (trace.end != ScanEnd::whole)
    throw InputError(name, fmt::format("not a trace, or damaged beyond repair after event {}: {}",
                                       trace.events, trace.reason));
  add_note(trace.notes, name, "damaged JSON was repaired: {}", repairs.text());
  return trace;
}

// Many programs write Chrome traces. Without this check the trace of another profiler would be read
// as a PyTorch trace in which nothing happened. It runs only if no event was of PyTorch's kinds.
// The first mark of the list that is in the text names the program.

struct Line {
  std::string_view mark, advice;
};
constexpr std::string_view kXla =
    "a trace of XLA (JAX or TensorFlow) is not read; linerate reads PyTorch, Horovod and Chakra "
    "traces";
constexpr std::string_view kTensorFlow =
    "a TensorFlow timeline is not read; linerate reads PyTorch, Horovod and Chakra traces";
// The surer marks come first.
constexpr std::array kForeign = {
    Line{"\"rocprofiler-sdk-tool\"",
         "the JSON of rocprofiler is not read; profile with torch.profiler and give its trace"},
    Line{"\"BeginNs\"",
         "the JSON of rocprof is not read; profile with torch.profiler and give its trace"},
    Line{"\"hlo_op\"", kXla},
    Line{"\"hlo_module\"", kXla},
    Line{"XLA Ops", kXla},
    Line{"/device:TPU", kXla},
    Line{"/job:", kTensorFlow},
    Line{"tf_op", kTensorFlow},
    Line{"/host:CPU",
         "a trace of TensorFlow's or JAX's profiler is not read; linerate reads PyTorch, Horovod "
         "and Chakra traces"},
    Line{"/device:", kTensorFlow},
    Line{"\"DataFlow\"", kTensorFlow},
    Line{"\"transport\"",
         "a page that linerate export wrote for ui.perfetto.dev; give the "
         "Timeline or the traces that it was made from"},
    Line{"perfetto", "a trace of Perfetto's own is not read; give the PyTorch trace of the run"},
    Line{"\"systemTraceEvents\"",
         "a system trace (ftrace, Perfetto) is not read; give the PyTorch trace of the run"},
    Line{"traceconv", "a trace of Perfetto's own is not read; give the PyTorch trace of the run"}};

/// For a trace without an event of PyTorch's categories: what it is and what to do, or nullopt if
/// it says that PyTorch wrote it.
std::optional<std::string> foreign_trace(const Head& text) {
  // Keys and categories that PyTorch writes and the reader passes over.
  if (text.contains_any({"\"schemaVersion\"", "\"distributedInfo\"", "\"deviceProperties\"",
                         "\"python_function\"", "\"cpu_instant_event\"", "\"fwdbwd\"", "\"ac2g\""}))
    return std::nullopt;
  for (const Line& l : kForeign)
    if (text.contains(l.mark)) return std::string(l.advice);
  return "a Chrome trace of another program, because none of its events is of a kind that PyTorch "
         "writes (cpu_op, kernel, gpu_memcpy, user_annotation); give the trace of "
         "export_chrome_trace";
}

}  // namespace

std::any read_kineto(PaddedText text, const std::string& name, const Progress& progress) {
  KinetoTrace trace = scan_kineto(text, name, progress);
  if (trace.end == ScanEnd::no_events)
    throw InputError(name, "valid JSON, but no \"traceEvents\" in it: not a PyTorch trace");
  if (trace.end == ScanEnd::out_of_memory)
    throw InputError(
        name,
        fmt::format("{} bytes of JSON need more memory than there is; filter or split the trace",
                    text.size()));
  if (trace.end == ScanEnd::damaged) trace = mended(text, name, progress);
  if (trace.events == 0 && trace.strangers > 0)
    throw InputError(name, fmt::format("expected events with \"ph\" or \"cat\", found {} elements "
                                       "without them: not a PyTorch trace",
                                       trace.strangers));
  if (trace.events > 0 && trace.own == 0)
    if (const auto advice = foreign_trace(Head(text.view()))) throw InputError(name, *advice);
  if (trace.events == 0) add_note(trace.notes, name, "the list of events is empty");
  if (trace.rank < 0) trace.rank = rank_in_name(name);
  note_rejects(trace);
  std::ranges::stable_sort(trace.steps, {}, &StepSpan::number);
  mark_updates(trace);
  find_empty_marks(trace);
  return trace;
}

// The files of one PyTorch job: the traces of its ranks. Here ranks are checked to be of one job,
// and files of one rank are joined as cycles.

namespace {

/// The heads of two files of one job say the same.
void require_same_head(const KinetoTrace& first, const KinetoTrace& other) {
  const auto differ = [&](const char* what, const auto& a, const auto& b) {
    throw InputError(
        other.source,
        fmt::format("is of a job with {} {}, but {} is of one with {}; give the traces of one job",
                    what, b, first.source, a));
  };
  if (first.world_size > 0 && other.world_size > 0 && first.world_size != other.world_size)
    differ("ranks:", first.world_size, other.world_size);
  if (!first.backend.empty() && !other.backend.empty() && first.backend != other.backend)
    differ("back end", first.backend, other.backend);
}

/// Traces without a rank that show no job around them are cycles of one process.
void number_lone_process(std::vector<KinetoTrace>& traces) {
  const bool lone = std::ranges::all_of(traces, [](const KinetoTrace& t) {
    return t.rank < 0 && t.world_size <= 1 && t.args.empty() && t.marks.empty();
  });
  if (traces.size() > 1 && lone)
    for (KinetoTrace& t : traces) t.rank = 0;
}

// Two checks against files that were collected by mistake: of another run of the job (other times),
// and of another job (other sizes). One common size in one common step is enough, because a trace
// may begin or end inside a step.

// Clocks of machines that keep time over the network are milliseconds apart; a second run of the
// same job begins many seconds later.
constexpr std::int64_t kMostApart = 2'000'000'000;
// 2001: a stamp below it counts from the start of a machine, which is another moment on each.
constexpr std::int64_t kFirstEpoch = 1'000'000'000'000'000'000;

/// Of its steps, or else of its work. Without any it ends before it starts.
Span steps_or_work(const RankActivity& r) {
  return r.steps.empty() ? hull_of_all(r.compute, r.communications) : hull_of_all(r.steps);
}

/// How far two records are from overlapping; 0: they do.
std::int64_t distance(const Span& a, const Span& b) {
  return std::max<std::int64_t>(0, std::max(a.start_ns, b.start_ns) - std::min(a.end_ns, b.end_ns));
}

void require_one_time(const RankActivity& first, const RankActivity& other) {
  const Span a = steps_or_work(first), b = steps_or_work(other);
  const bool known = a.start_ns <= a.end_ns && b.start_ns <= b.end_ns;
  if (!known || std::min(a.start_ns, b.start_ns) < kFirstEpoch) return;
  if (const std::int64_t apart = distance(a, b); apart > kMostApart)
    throw InputError(
        other.source,
        fmt::format("expected the same steps as {}, found a record {} apart from it, which is of "
                    "another run or of other steps; give the traces of one run, of the same steps",
                    first.source, format_time(in_seconds(apart))));
}

using Sizes = std::multiset<std::pair<CommOp, std::int64_t>>;

/// By number of the step; synchronising collectives over the whole job whose size is known.
std::map<std::int64_t, Sizes> exchanged(const RankActivity& r, int world_size) {
  std::map<std::int64_t, Sizes> steps;
  for (const Communication& c : r.communications)
    if (c.step >= 0 && carries_gradients(c.op) && c.bytes > 0 && !c.deduced &&
        (c.group_size < 0 || c.group_size == world_size))
      steps[r.steps[to_index(c.step)].number].insert({c.op, c.bytes});
  return steps;
}

void require_same_exchanges(const RankActivity& first, const RankActivity& other, int world_size) {
  const auto mine = exchanged(first, world_size), theirs = exchanged(other, world_size);
  bool any = false;
  for (const auto& [number, sizes] : mine) {
    const auto same = theirs.find(number);
    if (same == theirs.end()) continue;
    any = true;
    // A trace may begin or end inside a step, but what both have is of equal sizes.
    for (const auto& s : sizes)
      if (same->second.contains(s)) return;
  }
  if (any)
    throw InputError(other.source,
                     fmt::format("exchanged no size that {} did in the same steps, so these are "
                                 "traces of two jobs; give the traces of one job",
                                 first.source));
}

/// Throws InputError naming the file that is of another job. Each file is compared with the first
/// one. It is of another job if its record lies more than 2 seconds apart, or if they exchanged no
/// common size in any common step. Stamps that count from the start of a machine are not compared.
void require_one_job(const Job& job) {
  for (std::size_t r = 1; r < job.ranks.size(); ++r) {
    require_one_time(job.ranks.front(), job.ranks[r]);
    require_same_exchanges(job.ranks.front(), job.ranks[r], job.world_size);
  }
}

Job join_pytorch(std::vector<FilePart> parts) {
  auto traces = mapped(
      parts, [](FilePart& part) { return std::any_cast<KinetoTrace>(std::move(part.content)); });
  number_lone_process(traces);
  require_ranks(mapped(traces,
                       [](const KinetoTrace& t) {
                         return RankOfFile{t.rank, t.source};
                       }),
                true);
  for (const KinetoTrace& t : traces) require_same_head(traces.front(), t);
  Job job;
  for (KinetoTrace& t : traces) {
    add_rank(t, job);
    t = KinetoTrace{};  // ranks are many and large
  }
  join_cycles(job);
  require_one_job(job);
  return job;
}

/// Any JSON may be one: distributedInfo and deviceProperties may fill the head.
bool is_pytorch(const Head& head) {
  return head.contains_any(
      {"\"traceEvents\"", "\"distributedInfo\"", "\"deviceProperties\"", "\"ph\""});
}

}  // namespace

std::vector<Importer> kineto_importers() {
  return {
      {.name = "PyTorch trace",
       .matches =
           [](const Head& head) { return head.is_json() && head.form() != HeadForm::nested_list; },
       .read = read_kineto,
       .join = join_pytorch,
       .is_sure = is_pytorch}};
}

}  // namespace linerate::trace
