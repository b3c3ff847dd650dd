// Compares what is asked for with the measurements that answer, and says in a sentence each what
// differs: the rank count, the bandwidth, the latency. Reports print the sentences as notes.
#include "linerate/cost/extrapolation.hpp"

#include <fmt/format.h>

#include <set>

#include "linerate/core/text.hpp"
#include "linerate/cost/collective_times.hpp"

namespace linerate::cost {
namespace {

std::string measured_rank_counts(const doc::Cluster& cluster) {
  std::set<int> ranks;
  for (const doc::CollectiveCost& cost : cluster.collectives) ranks.insert(cost.ranks);
  return fmt::format("{}", fmt::join(ranks, ", "));
}

/// Notes on the measurements that answer for all-reduces.
std::string about_ranks(const CostModel& model, int ranks) {
  const doc::Cluster& cluster = model.cluster();
  switch (model.source(Collective::all_reduce, ranks)) {
    case PriceSource::interpolated:
      return fmt::format(
          "Interpolated: collectives were measured on {} ranks. For {}, which lie between two of "
          "them, the collective's law holds from both.",
          measured_rank_counts(cluster), ranks);
    case PriceSource::other_ranks:
      return fmt::format(
          "Extrapolated: collectives were measured on {} ranks. Other rank counts follow the "
          "collective's law on the same kind of link.",
          measured_rank_counts(cluster));
    case PriceSource::composed:
      return fmt::format(
          "Composed: collectives were measured on {} ranks with {} a node. A collective inside "
          "nodes and one between nodes run one after the other.",
          measured_rank_counts(cluster), cluster.ranks_per_node);
    default:
      return "";
  }
}

std::string about_bandwidth(const CostModel& model) {
  const doc::Link& network = model.cluster().network;
  const std::optional<BytesPerSecond> asked = model.options().bandwidth;
  if (!asked) return "";
  if (network.line_rate_bytes_per_s > 0)
    return asked->value == network.line_rate_bytes_per_s
               ? ""
               : fmt::format(
                     "Extrapolated: collectives were measured on a line of {}. Another line rate "
                     "scales the part of the time that grows with the size.",
                     format_bit_rate(network.line_rate_bytes_per_s));
  if (asked->value == network.bandwidth_bytes_per_s)
    return fmt::format(
        "The Cluster does not say what its line carries, so {} counts as what its collectives got "
        "of it. linerate calibrate --line-rate tells the two apart.",
        format_bit_rate(asked->value));
  return network.bandwidth_bytes_per_s > 0
             ? fmt::format(
                   "Extrapolated: collectives were measured at {}. Another bandwidth scales the "
                   "part of the time that grows with the size. The Cluster does not say what its "
                   "line carries; linerate calibrate --line-rate does.",
                   format_bit_rate(network.bandwidth_bytes_per_s))
             : "Extrapolated: the Cluster does not say which bandwidth limited its measurements, "
               "so another bandwidth can only slow them down.";
}

/// Notes which of two rates a bandwidth is.
std::string about_line(const CostModel& model) {
  const doc::Link& network = model.cluster().network;
  if (!(network.line_rate_bytes_per_s > 0 && network.bandwidth_bytes_per_s > 0)) return "";
  return fmt::format(
      "Bandwidths are those of the line. The measured collectives got {2} of {0}{1}.",
      format_bit_rate(network.line_rate_bytes_per_s),
      network.line_rate_assumed ? " (assumed; linerate calibrate --line-rate says it)" : "",
      format_bit_rate(network.bandwidth_bytes_per_s));
}

std::string about_latency(const CostModel& model) {
  const double measured = model.cluster().network.latency_s;
  const std::optional<Seconds> asked = model.options().latency;
  return !asked || asked->value == measured
             ? ""
             : fmt::format(
                   "Extrapolated: the measurements fit {} a message step. Another latency adds its "
                   "difference to each step.",
                   format_time(measured));
}

/// Notes on slow ranks that are not among so many.
std::string about_absent_ranks(const doc::Cluster& cluster, int ranks) {
  std::set<int> absent;
  for (const doc::RankSpeed& s : cluster.rank_speeds)
    if (s.rank >= ranks) absent.insert(s.rank);
  return absent.empty()
             ? ""
             : fmt::format(
                   "The Cluster's rank_speeds of {} {} have no effect, because the job has ranks 0 "
                   "to {}.",
                   absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "), ranks - 1);
}

}  // namespace

std::vector<std::string> extrapolation_notes(const CostModel& model, int ranks) {
  std::vector<std::string> notes = shared_core_notes(model.cluster(), ranks);
  if (std::string note = about_absent_ranks(model.cluster(), ranks); !note.empty())
    notes.push_back(std::move(note));
  if (!model.measured_ranks(Collective::all_reduce, ranks)) return notes;
  for (std::string note :
       {about_ranks(model, ranks), about_line(model), about_bandwidth(model), about_latency(model)})
    if (!note.empty()) notes.push_back(std::move(note));
  return notes;
}

}  // namespace linerate::cost
