#include "linerate/cost/collective_times.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/cost/cost_model.hpp"

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
                       "measured inside nodes of {} ranks; between them a closed form over "
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
      "{} ranks share {} cores: computation, and collectives that run on the cores, take longer "
      "than ranks with a core each were measured to; nothing here prices that",
      ranks, *cluster.cores)};
}

CollectiveTimes collective_times(const doc::Cluster& cluster, Collective collective,
                                 const std::vector<Bytes>& sizes, std::optional<int> ranks,
                                 const CostOptions& options) {
  CollectiveTimes all;
  all.collective = collective;
  all.ranks = ranks.value_or(cluster.ranks);
  if (all.ranks < 1) throw UsageError("--ranks: the Cluster does not say how many; give --ranks N");
  if (sizes.empty() && collective != Collective::barrier)
    throw UsageError("--size: expected a size such as 64MiB, found none");
  const CostModel model(cluster, options);
  all.fitted = model.fitted(collective, all.ranks);
  all.notes = shared_core_notes(cluster, all.ranks);
  if (std::string note = about_source(model, collective, all.ranks); !note.empty())
    all.notes.push_back(std::move(note));
  const auto add = [&](Bytes size) {
    all.times.push_back({size, model.collective(collective, size.value, all.ranks)});
  };
  if (collective == Collective::barrier)
    add(Bytes{0});
  else
    for (const Bytes size : sizes) add(size);
  return all;
}

}  // namespace linerate::cost
