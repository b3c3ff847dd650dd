// The files of one PyTorch job: the traces of its ranks. Kineto has read each file by itself. Here
// ranks are checked to be of one job, and files of one rank are joined as cycles.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/job/one_job.hpp"
#include "linerate/trace/job/periods.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {
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

std::vector<RankOfFile> ranks_stated(const std::vector<KinetoTrace>& traces) {
  std::vector<RankOfFile> ranks;
  for (const KinetoTrace& t : traces) ranks.push_back({t.rank, t.source});
  return ranks;
}

Job join_pytorch(std::vector<FilePart> parts) {
  std::vector<KinetoTrace> traces;
  for (FilePart& part : parts)
    traces.push_back(std::any_cast<KinetoTrace>(std::move(part.content)));
  number_lone_process(traces);
  require_ranks(ranks_stated(traces), true);
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
Match matches_trace(const Head& head) {
  if (!head.is_json() || head.form() == HeadForm::nested_list) return Match::no;
  return head.contains_any(
             {"\"traceEvents\"", "\"distributedInfo\"", "\"deviceProperties\"", "\"ph\""})
             ? Match::yes
             : Match::maybe;
}

}  // namespace

std::vector<Importer> pytorch_importers() {
  return {{.name = "PyTorch trace",
           .matches = matches_trace,
           .read = read_kineto,
           .join = join_pytorch}};
}

}  // namespace linerate::trace
