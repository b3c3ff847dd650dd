// Tables of collectives as a job ran them. explain's rows (explain/explanation.hpp) already
// have the transfer of each collective without waiting. What concurrent computation cost is taken
// off here, since the simulator adds it again where computation and transfers meet.
#include "linerate/calibrate/from_traces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/explain/explanation.hpp"

namespace linerate::calibrate {
namespace {

/// The collective of the same name; a barrier has no size to calibrate with.
std::optional<Collective> collective_of(trace::CommOp op) {
  for (const std::string_view name : kCollectiveNames)
    if (name == trace::name_of(op) && op != trace::CommOp::barrier) return parse_collective(name);
  return std::nullopt;
}

/// Durations by size: the least of each is taken as the transfer.
using Durations = std::map<std::pair<doc::CollectiveCost*, std::int64_t>, double>;

constexpr double kNotSlower = 1.005;  // rounds to 1.00

/// The factor, 1 if it is unknown.
double factor_of(const trace::SlowdownFound& found, const std::string& source, const char* what,
                 const char* other, std::vector<std::string>& notes) {
  if (found.slowdown) {
    const std::string slower = found.slowdown->factor < kNotSlower
                                   ? std::string("no slower")
                                   : fmt::format("{:.2f} times slower", found.slowdown->factor);
    notes.push_back(fmt::format("{}: {} runs {} during {} (90 % interval {:.2f} to {:.2f})", source,
                                what, slower, other, found.slowdown->low, found.slowdown->high));
    return found.slowdown->factor;
  }
  const char* why = found.comparisons < trace::kFewestComparisons
                        ? "too little of it was recorded both with and without"
                        : "the recorded times scatter too much";
  notes.push_back(
      fmt::format("{}: it is not known how much slower {} runs during {}, because {}; taken as 1",
                  source, what, other, why));
  return 1;
}

// A collective does not start at the moment at which its data is ready: the host wakes a thread or
// launches a kernel. The delay is seen only if nothing else can explain the gap, so only
// collectives that came to an idle network count. At least eight are needed, and a 90 % interval no
// wider than a factor of four.

constexpr std::size_t kFewest = 8;
constexpr double kWidest = 4;  // an interval with ends further apart says nothing

/// Seconds, of all ranks.
std::vector<double> delays_on_idle_network(const trace::Job& job) {
  std::vector<double> delays;
  for (const trace::RankActivity& rank : job.ranks) {
    std::int64_t busy_until_ns = INT64_MIN;
    for (const trace::Communication& c : rank.communications) {
      if (c.ready_ns != trace::kNotReady && busy_until_ns <= c.ready_ns)
        delays.push_back(static_cast<double>(c.span.start_ns - c.ready_ns) * 1e-9);
      busy_until_ns = std::max(busy_until_ns, c.span.end_ns);
    }
  }
  return delays;
}

}  // namespace

std::vector<doc::CollectiveCost> tables_from_trace(const trace::Job& job, const std::string& source,
                                                   std::vector<std::string>& notes,
                                                   const trace::Overlap& overlap,
                                                   double communication_slowdown) {
  std::map<std::pair<Collective, int>, doc::CollectiveCost> tables;
  Durations unsplit;
  std::size_t unsized = 0;
  const trace::Breakdown breakdown = trace::break_down(job);
  for (std::size_t k = 0; k < breakdown.collectives.size(); ++k) {
    const trace::CollectiveRow& row = breakdown.collectives[k];
    const auto collective = collective_of(row.op);
    if (!collective || !row.ranks || *row.ranks < 2) continue;
    if (!row.bytes || *row.bytes <= 0) {
      ++unsized;
      continue;
    }
    doc::CollectiveCost& table = tables[{*collective, *row.ranks}];
    table.collective = *collective, table.ranks = *row.ranks;
    table.in_place = *collective == Collective::all_reduce || *collective == Collective::broadcast;
    table.source = source;
    if (row.transfer_s && *row.transfer_s > 0) {
      const double beside_s =
          k < overlap.collective_beside_s.size() ? overlap.collective_beside_s[k] : 0;
      const double lost_s = std::max(0.0, beside_s) * (1 - 1 / communication_slowdown);
      table.samples.push_back({static_cast<double>(*row.bytes), *row.transfer_s - lost_s});
    } else if (row.duration_s > 0) {
      const auto [entry, fresh] = unsplit.emplace(std::pair(&table, *row.bytes), row.duration_s);
      if (!fresh) entry->second = std::min(entry->second, row.duration_s);
    }
  }
  for (const auto& [what, seconds] : unsplit)
    what.first->samples.push_back({static_cast<double>(what.second), seconds});
  if (!unsplit.empty())
    notes.push_back(
        fmt::format("{}: ranks are missing, so {} sizes have their least duration, which may "
                    "include waiting for late ranks; give the traces of all ranks together",
                    source, unsplit.size()));
  if (unsized > 0)
    notes.push_back(
        fmt::format("{}: {} collectives without a size were left out", source, unsized));
  std::vector<doc::CollectiveCost> all;
  for (auto& [kind, table] : tables)
    if (!table.samples.empty()) all.push_back(std::move(table));
  if (all.empty())
    throw InputError(source,
                     "expected collectives with a size and a time, found none to calibrate with; "
                     "give traces recorded with record_shapes=True");
  return all;
}

std::vector<doc::RankSpeed> late_ranks_of(const trace::Job& job, std::vector<std::string>& notes) {
  const trace::Breakdown b = trace::break_down(job);
  std::vector<doc::RankSpeed> late;
  for (const trace::Cause& cause : b.path.causes) {
    if (cause.kind != trace::CauseKind::late_rank || !cause.rank) continue;
    for (const trace::RankRow& row : b.ranks) {
      const double delay_s = row.rank == *cause.rank ? row.delay_per_step_s.value_or(0) : 0;
      if (delay_s <= 0) continue;
      late.push_back({.rank = row.rank, .delay_s = delay_s});
      notes.push_back(
          fmt::format("rank {} comes {} late in each step; the Cluster says so under rank_speeds, "
                      "and predictions include it",
                      row.rank, format_time(delay_s)));
    }
  }
  return late;
}

TracedJob calibrate_from_trace(const trace::Job& job, const std::string& source,
                               std::vector<std::string>& notes) {
  const trace::Overlap overlap = trace::overlap_of(job);
  TracedJob out;
  out.contention = contention_from_trace(overlap, source, notes);
  out.start_delay_s = start_delay_from_trace(job, source, notes);
  out.tables = tables_from_trace(job, source, notes, overlap,
                                 out.contention ? out.contention->communication_slowdown : 1);
  out.late_ranks = late_ranks_of(job, notes);
  return out;
}

std::optional<doc::Contention> contention_from_trace(const trace::Overlap& overlap,
                                                     const std::string& source,
                                                     std::vector<std::string>& notes) {
  const trace::SlowdownFound compute = trace::compute_slowdown(overlap);
  const trace::SlowdownFound communication = trace::slowdown_of(overlap.communication);
  doc::Contention contention;
  contention.compute_slowdown = factor_of(compute, source, "computation", "collectives", notes);
  contention.communication_slowdown =
      factor_of(communication, source, "communication", "computation", notes);
  if (!compute.slowdown && !communication.slowdown) return std::nullopt;
  return contention;
}

double start_delay_from_trace(const trace::Job& job, const std::string& source,
                              std::vector<std::string>& notes) {
  const std::vector<double> delays = delays_on_idle_network(job);
  const auto unknown = [&](const std::string& why) {
    notes.push_back(fmt::format(
        "{}: it is not known how long the host takes to start a collective, because {}; taken as 0",
        source, why));
    return 0.0;
  };
  // An importer that did not see when a collective was ready may have put its start there.
  if (std::none_of(delays.begin(), delays.end(), [](double s) { return s > 0; }))
    return unknown("no record says when a collective was ready before it started");
  if (delays.size() < kFewest)
    return unknown(
        fmt::format("{} came to an idle network, and {} are needed", delays.size(), kFewest));
  // The order statistics between which the median lies in 90 % of cases.
  const double around = kNormal90 / 2 / std::sqrt(static_cast<double>(delays.size()));
  const double low = std::max(0.0, quantile(delays, 0.5 - around));
  const double high = std::max(0.0, quantile(delays, 0.5 + around));
  const std::string interval = fmt::format("90 % interval {} to {}, {} collectives",
                                           format_time(low), format_time(high), delays.size());
  if (high > kWidest * low) return unknown(fmt::format("it scatters ({})", interval));
  const double delay = std::max(0.0, median(delays));
  notes.push_back(fmt::format(
      "{}: on an idle network a collective starts {} after its rank is ready for it ({})", source,
      format_time(delay), interval));
  return delay;
}

}  // namespace linerate::calibrate
