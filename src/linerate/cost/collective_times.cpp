#include "linerate/cost/collective_times.hpp"

#include "linerate/core/error.hpp"
#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {

CollectiveTimes collective_times(const doc::Cluster& cluster, Collective collective,
                                 const std::vector<Bytes>& sizes, std::optional<int> ranks) {
  CollectiveTimes all;
  all.collective = collective;
  all.ranks = ranks.value_or(cluster.ranks);
  if (all.ranks < 1) throw UsageError("--ranks: the Cluster does not say how many; give --ranks N");
  if (sizes.empty() && collective != Collective::barrier)
    throw UsageError("--size: expected a size such as 64MiB, found none");
  const CostModel model(cluster);
  all.fitted = model.fitted(collective, all.ranks);
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
