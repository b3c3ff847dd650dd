#include "linerate/advise/extrapolation.hpp"

#include <fmt/format.h>

#include <set>

#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

std::string measured_rank_counts(const doc::Cluster& cluster) {
  std::set<int> ranks;
  for (const doc::CollectiveCost& cost : cluster.collectives) ranks.insert(cost.ranks);
  return fmt::format("{}", fmt::join(ranks, ", "));
}

}  // namespace

std::vector<std::string> extrapolation_notes(const cost::CostModel& model, int ranks) {
  const std::optional<int> measured = model.measured_ranks(Collective::all_reduce, ranks);
  if (!measured) return {};
  std::vector<std::string> notes;
  const doc::Cluster& cluster = model.cluster();
  if (*measured != ranks)
    notes.push_back(
        fmt::format("Extrapolated: collectives were measured on {} ranks; other rank counts follow "
                    "the collective's law on the same kind of link.",
                    measured_rank_counts(cluster)));
  const double line = cluster.network.bandwidth_bytes_per_s;
  const std::optional<BytesPerSecond> asked = model.options().bandwidth;
  if (asked && asked->value != line)
    notes.push_back(
        line > 0
            ? fmt::format("Extrapolated: collectives were measured at {}; another bandwidth scales "
                          "the part that grows with the size.",
                          format_bit_rate(line))
            : "Extrapolated: the Cluster does not say which bandwidth limited its measurements; "
              "another one can only slow them down.");
  return notes;
}

}  // namespace linerate::advise
