#include "linerate/trace/match.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace linerate::trace {
namespace {

/// (group, step number or INT64_MIN with a sequence, k-th or sequence, operation where no group is
/// known)
using Key = std::tuple<std::int32_t, std::int64_t, std::int64_t, int>;

constexpr std::int64_t kBySequence = INT64_MIN;

bool is_point_to_point(CommOp op) {
  return op == CommOp::send || op == CommOp::recv || op == CommOp::send_recv;
}

std::map<Key, std::vector<Member>> keyed(const Job& job) {
  std::map<Key, std::vector<Member>> all;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankActivity& rank = job.ranks[r];
    std::map<Key, std::int64_t> counted;
    for (std::size_t i = 0; i < rank.communications.size(); ++i) {
      const Communication& c = rank.communications[i];
      const int kind = c.sequence >= 0 ? (is_point_to_point(c.op) ? 1 : 0)
                       : c.group < 0   ? 2 + static_cast<int>(c.op)
                                       : 0;
      Key key{c.group, kBySequence, c.sequence, kind};
      if (c.sequence < 0) {
        const std::int64_t step =
            c.step >= 0 ? rank.steps[static_cast<std::size_t>(c.step)].number : -1;
        key = {c.group, step, 0, kind};
        std::get<2>(key) = counted[key]++;
      }
      all[key].push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(i)});
    }
  }
  return all;
}

const Communication& at(const Job& job, const Member& m) {
  return job.ranks[static_cast<std::size_t>(m.rank)]
      .communications[static_cast<std::size_t>(m.index)];
}

bool agree(const Job& job, const std::vector<Member>& members) {
  const Communication& first = at(job, members.front());
  return std::all_of(members.begin(), members.end(), [&](const Member& m) {
    const Communication& c = at(job, m);
    return c.op == first.op && c.bytes == first.bytes;
  });
}

std::int64_t median_of(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void align_clocks(const Job& job, MatchResult& result) {
  const std::size_t n = job.ranks.size();
  result.clock_offset_ns.assign(n, 0);
  std::vector<std::vector<std::int64_t>> ahead(n);
  for (const Matched& m : result.collectives) {
    if (m.members.size() < 2 || m.members.front().rank != 0 ||
        !synchronises(at(job, m.members.front()).op))
      continue;
    const std::int64_t end = at(job, m.members.front()).span.end_ns;
    for (const Member& other : m.members)
      ahead[static_cast<std::size_t>(other.rank)].push_back(end - at(job, other).span.end_ns);
  }
  std::vector<std::int64_t> residuals;
  for (std::size_t r = 1; r < n; ++r) {
    if (ahead[r].empty()) continue;
    result.clock_offset_ns[r] = median_of(ahead[r]);
    for (const std::int64_t d : ahead[r])
      residuals.push_back(std::abs(d - result.clock_offset_ns[r]));
  }
  if (!residuals.empty()) result.clock_residual_ns = median_of(residuals);
}

}  // namespace

MatchResult match_collectives(const Job& job) {
  MatchResult result;
  std::set<std::int32_t> stopped;
  for (auto& [key, members] : keyed(job)) {
    const std::int32_t group = std::get<0>(key);
    const Communication& first = at(job, members.front());
    const bool too_many =
        members.size() > job.ranks.size() ||
        (first.group_size > 0 && members.size() > static_cast<std::size_t>(first.group_size));
    if (members.size() > 1 && !stopped.contains(group) && (too_many || !agree(job, members))) {
      stopped.insert(group);
      result.notes.push_back(fmt::format(
          "group {}: ranks disagree at collective {}{} (operation, bytes or members differ); "
          "matching of this group stops there",
          group < 0 ? "(unnamed)" : job.groups[static_cast<std::size_t>(group)], std::get<2>(key),
          std::get<1>(key) >= 0 ? fmt::format(" of step {}", std::get<1>(key)) : ""));
    }
    if (members.size() > 1 && stopped.contains(group)) {
      for (const Member& m : members) result.collectives.push_back({{m}, false});
      continue;
    }
    const std::size_t expected = first.group_size > 0 ? static_cast<std::size_t>(first.group_size)
                                 : job.world_size > 0 ? static_cast<std::size_t>(job.world_size)
                                                      : job.ranks.size();
    const bool complete = members.size() == expected && (expected > 1 || first.group_size == 1);
    result.collectives.push_back({members, complete});
  }
  std::sort(result.collectives.begin(), result.collectives.end(),
            [&job](const Matched& a, const Matched& b) {
              return at(job, a.members.front()).span.start_ns <
                     at(job, b.members.front()).span.start_ns;
            });
  align_clocks(job, result);
  return result;
}

}  // namespace linerate::trace
