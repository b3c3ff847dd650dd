// Bus bandwidth of an all-to-all assumes equal parts, and one of them stays on the rank. With
// uneven parts, as experts have them, the own part may be all or nothing of the data. Splits are
// needed to say which.
#include "linerate/trace/kineto/uneven_all_to_all.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

/// Elements that cross the network: all less the rank's own part. Splits count rows or elements, so
/// they are used as shares of their sum. No list: even parts. -1: unknown.
std::int64_t without_own(const std::vector<std::int64_t>& parts, std::size_t own,
                         std::int64_t elements, int ranks) {
  if (parts.empty() && ranks > 0) return elements - elements / ranks;
  if (elements < 0 || own >= parts.size()) return -1;
  double sum = 0;
  for (const std::int64_t p : parts) sum += static_cast<double>(std::max<std::int64_t>(p, 0));
  if (sum <= 0) return elements == 0 ? 0 : -1;
  const double share = static_cast<double>(std::max<std::int64_t>(parts[own], 0)) / sum;
  return elements - static_cast<std::int64_t>(share * static_cast<double>(elements) + 0.5);
}

}  // namespace

std::int64_t UnevenAllToAll::bus_bytes_of(const CollectiveArgs& a) {
  if (a.splits < 0 || a.element_bytes < 0) return -1;
  const SplitSizes& s = trace_.splits[to_index(a.splits)];
  if (s.cut) return ++cut_, -1;
  const auto own = own_position(a);
  if (!own) return ++unplaced_, -1;
  const std::int64_t sent = without_own(s.in, *own, a.in_elements, a.group_size);
  const std::int64_t received = without_own(s.out, *own, a.out_elements, a.group_size);
  const std::int64_t most = std::max(sent, received);
  if (sent < 0 || received < 0 || most > (std::int64_t{1} << 40)) return -1;
  return most * a.element_bytes;
}

/// This rank's place among the ranks of the group.
std::optional<std::size_t> UnevenAllToAll::own_position(const CollectiveArgs& a) const {
  if (a.group < 0 || trace_.rank < 0) return std::nullopt;
  const auto& ranks = trace_.groups[to_index(a.group)].ranks;
  const auto at = std::find(ranks.begin(), ranks.end(), trace_.rank);
  if (at == ranks.end()) return std::nullopt;
  return to_index(at - ranks.begin());
}

std::vector<std::string> UnevenAllToAll::notes() const {
  std::vector<std::string> notes;
  if (cut_ > 0)
    notes.push_back(
        fmt::format("{}: the split sizes of {} uneven all-to-alls are cut above 30 ranks, so their "
                    "bus bandwidth is that of even splits",
                    trace_.source, cut_));
  if (unplaced_ > 0)
    notes.push_back(fmt::format(
        "{}: {} uneven all-to-alls do not say which split is the rank's own (rank or members of "
        "the group are missing), so their bus bandwidth is that of even splits",
        trace_.source, unplaced_));
  return notes;
}

}  // namespace linerate::trace
