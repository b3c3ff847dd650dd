// A trace may lack communication, sizes, steps or a device, for different reasons. Each reason has
// its own note, because each has another remedy: record with shapes, without graphs, or earlier.
#include "linerate/trace/kineto/absences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "linerate/core/text.hpp"

namespace linerate::trace {
namespace {

constexpr std::size_t kShownOfName = 60;

std::string heaviest_kernels(const KinetoTrace& t) {
  std::unordered_map<std::int32_t, std::int64_t> total;
  for (const DeviceEvent& e : t.device)
    if (!e.copy) total[e.name] += e.span.length();
  std::vector<std::pair<std::int64_t, std::int32_t>> order;
  for (const auto& [name, ns] : total) order.emplace_back(ns, name);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i)
    text.push_back(t.names[order[i].second].text.substr(0, kShownOfName));
  return join(text, "; ");
}

void note_unknown_records(const KinetoTrace& t, Job& job) {
  if (t.other_device > 0)
    job.notes.push_back(
        fmt::format("{}: {} records of an accelerator (mtia_ccp_events, collective_comm) are of an "
                    "unknown kind and were left out, so its times are unknown",
                    t.source, t.other_device));
  for (const auto& [name, count] : t.unknown_collectives)
    job.notes.push_back(
        fmt::format("{}: the collective name \"{}\" ({} records) is not known; the kernel's name "
                    "is used instead",
                    t.source, name.substr(0, kShownOfName), count));
}

/// Ranks of the job; if the head of the file does not say, the collectives' records may.
int ranks_of_job(const KinetoTrace& t) {
  int ranks = t.world_size;
  for (const CollectiveArgs& a : t.args) ranks = std::max(ranks, a.group_size);
  return ranks;
}

void note_missing_communication(const KinetoTrace& t, const RankActivity& rank, Job& job) {
  const int ranks = ranks_of_job(t);
  if (ranks <= 1 || t.device.empty() || !rank.communications.empty()) return;
  job.communication_unknown = true;
  job.notes.push_back(
      fmt::format("{}: a job of {} ranks, yet no kernel is of a library that communicates "
                  "(heaviest: {}), so communication times and T_1 are unknown",
                  t.source, ranks, heaviest_kernels(t)));
}

/// Number of communications that were issued before the recording began. They come first in the
/// trace, have no launch in it and no size, while later ones have a size. Barriers never have one.
std::ptrdiff_t cut_by_the_begin(const RankActivity& rank) {
  const auto first_sized = std::find_if(rank.communications.begin(), rank.communications.end(),
                                        [](const Communication& c) { return c.bytes >= 0; });
  if (first_sized == rank.communications.end()) return 0;
  return std::count_if(rank.communications.begin(), first_sized, [](const Communication& c) {
    return c.ready_ns == kNotReady && c.op != CommOp::barrier;
  });
}

/// Number of communications that a CUDA graph launched. A launch of a kernel starts one kernel, so
/// a launch with several is a graph's, and its arguments say nothing of the single kernels.
std::ptrdiff_t in_graphs(const KinetoTrace& t) {
  std::unordered_map<std::uint64_t, std::ptrdiff_t> kernels, communications;  // by launch
  for (const DeviceEvent& e : t.device) {
    if (e.copy || e.correlation == 0) continue;
    ++kernels[e.correlation];
    if (e.args < 0 && is_communication_kernel(t, e)) ++communications[e.correlation];
  }
  std::ptrdiff_t found = 0;
  for (const auto& [launch, count] : communications)
    if (kernels[launch] > 1) found += count;
  return found;
}

/// Counts communications without a size by reason. Those cut by the begin come first, then those of
/// graphs; the rest was recorded without shapes, or before 2024.
void note_unknown_sizes(const KinetoTrace& t, const RankActivity& rank, Job& job) {
  const auto unsized =
      std::count_if(rank.communications.begin(), rank.communications.end(),
                    [](const Communication& c) { return c.bytes < 0 && c.op != CommOp::barrier; });
  const auto cut = cut_by_the_begin(rank);
  if (cut > 0)
    job.notes.push_back(
        fmt::format("{}: {} of {} communications were issued before the recording began, so their "
                    "sizes are unknown",
                    t.source, cut, rank.communications.size()));
  const std::size_t all = rank.communications.size();
  const auto of_graphs = std::min(unsized - cut, in_graphs(t));
  if (of_graphs > 0) {
    job.runs_graphs = true;
    job.notes.push_back(fmt::format(
        "{}: {} of {} communications run in CUDA graphs, whose launch does not state their sizes, "
        "so their bytes and bandwidths are unknown; a recording without graphs states them",
        t.source, of_graphs, all));
  }
  if (unsized - cut > of_graphs)
    job.notes.push_back(
        fmt::format("{}: {} of {} communications carry no size (recorded before 2024, or without "
                    "record_shapes), so their bytes and bandwidths are unknown",
                    t.source, unsized - cut - of_graphs, all));
}

}  // namespace

void note_absences(const KinetoTrace& t, const RankActivity& rank, Job& job) {
  note_unknown_records(t, job);
  if (t.device.empty() && !job.cpu_device)
    job.notes.push_back(fmt::format(
        "{}: no device activity (kernels, copies) in it, so busy times of the device are unknown",
        t.source));
  if (rank.steps.empty())
    job.notes.push_back(
        fmt::format("{}: no ProfilerStep annotation, so the time per step is unknown", t.source));
  note_missing_communication(t, rank, job);
  note_unknown_sizes(t, rank, job);
  if (t.rank < 0)
    job.notes.push_back(fmt::format(
        "{}: neither distributedInfo nor the file name (rank3, worker3) says the rank", t.source));
}

}  // namespace linerate::trace
