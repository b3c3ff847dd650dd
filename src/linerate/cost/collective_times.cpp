// Answers `whatif --collective`: the time of one collective over rank counts and sizes, each with
// its interval, and notes on where the numbers come from.
#include "linerate/cost/collective_times.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/cost/outliers.hpp"

namespace linerate::cost {
namespace {

std::string about_source(const CostModel& model, Collective collective, int ranks) {
  const doc::Cluster& cluster = model.cluster();
  switch (model.source(collective, ranks)) {
    case PriceSource::interpolated:
      return "between two measured rank counts, by the collective's law from both";
    case PriceSource::composed:
      return model.fitted(collective, ranks)
                 ? fmt::format("measured inside nodes of {} ranks and between nodes, composed",
                               cluster.ranks_per_node)
                 : fmt::format(
                       "measured inside nodes of {} ranks; between them a formula over "
                       "the network's link",
                       cluster.ranks_per_node);
    default:
      return "";
  }
}

}  // namespace

std::vector<std::string> shared_core_notes(const doc::Cluster& cluster, int ranks) {
  if (!cluster.cores || ranks <= *cluster.cores) return {};
  return {fmt::format(
      "{} ranks share {} cores. Computation, and collectives that run on the cores, take longer "
      "than was measured with a core for each rank, and nothing here prices that",
      ranks, *cluster.cores)};
}

CollectiveTimes collective_times(const doc::Cluster& cluster, Collective collective,
                                 const std::vector<Bytes>& sizes, const std::vector<int>& ranks,
                                 const CostOptions& options) {
  const std::vector<int> counts = ranks.empty() ? std::vector{cluster.ranks} : ranks;
  if (counts.front() < 1)
    throw UsageError("--ranks: the Cluster does not say how many; give --ranks N");
  const bool barrier = collective == Collective::barrier;
  if (sizes.empty() && !barrier)
    throw UsageError("--size: expected a size such as 64MiB, found none");
  const CostModel model(cluster, options);
  CollectiveTimes all;
  all.collective = collective;
  const int most = *std::max_element(counts.begin(), counts.end());
  const Bytes largest = barrier ? Bytes{0} : *std::max_element(sizes.begin(), sizes.end());
  const auto width_of = [&](const doc::Cluster& known) {
    const Estimate e = CostModel(known, options).collective(collective, largest.value, most);
    return e.high - e.low;
  };
  if (std::string note = nominal_note(cluster, most, width_of); !note.empty())
    all.notes.push_back(note.substr(0, note.size() - 1));  // the report ends its sentences
  for (const int n : counts) {
    std::vector<std::string> notes = shared_core_notes(cluster, n);
    if (std::string note = about_source(model, collective, n); !note.empty())
      notes.push_back(counts.size() == 1 ? note : fmt::format("{} ranks: {}", n, note));
    all.notes.insert(all.notes.end(), notes.begin(), notes.end());
    const bool fitted = model.fitted(collective, n) || (n > 1 && model.has_spread());
    for (const Bytes size : barrier ? std::vector{Bytes{0}} : sizes)
      all.times.push_back({n, size, fitted, model.collective(collective, size.value, n)});
  }
  for (std::string& note : outlier_notes(model)) all.notes.push_back(std::move(note));
  return all;
}

}  // namespace linerate::cost
