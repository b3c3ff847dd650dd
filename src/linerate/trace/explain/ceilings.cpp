#include "linerate/trace/explain/ceilings.hpp"

#include <algorithm>
#include <utility>

namespace linerate::trace {
namespace {

bool has(const std::vector<Remedy>& remedies, Remedy r) {
  return std::find(remedies.begin(), remedies.end(), r) != remedies.end();
}

}  // namespace

Gains::Gains(const Program& program, const Lateness& lateness, std::set<std::int64_t> left_out)
    : program_(program),
      lateness_(lateness),
      left_out_(std::move(left_out)),
      recorded_(replay(program)) {}

Change Gains::change_of(const std::vector<Remedy>& remedies) const {
  Change change;
  change.instant_network = has(remedies, Remedy::infinitely_fast_network);
  change.nothing_waits = has(remedies, Remedy::perfect_overlap);
  change.cuts_ns = no_cuts(program_);
  const bool gaps = has(remedies, Remedy::no_host_gaps);
  if (gaps || has(remedies, Remedy::no_data_stalls))
    for (std::size_t l = 0; l < program_.lanes.size(); ++l)
      for (std::size_t i = 0; i < program_.lanes[l].points.size(); ++i) {
        const OwnTime& own = program_.lanes[l].points[i].before;
        change.cuts_ns[l][i] =
            gaps ? own.idle_ns() : own.idle[static_cast<std::size_t>(Phase::data_loading)];
      }
  // A lane that begins later paused in an unrecorded step.
  if (gaps) lateness_.cut_starts(change.cuts_ns);
  if (has(remedies, Remedy::no_stragglers)) {
    change.instant_unmatched = true;
    lateness_.cut(change.cuts_ns);
  }
  return change;
}

/// The longest of the ranks; their sum if none needs another.
double Gains::total_s(const Borders& borders) const {
  const bool apart = program_.collectives.empty();
  std::int64_t most = 0;
  for (std::size_t l = 0; l < borders.size(); ++l) {
    std::int64_t sum = 0;
    for (const StepWindow& s : program_.lanes[l].steps)
      if (!left_out_.contains(s.number)) sum += borders[l][s.to] - borders[l][s.from];
    most = apart ? most + sum : std::max(most, sum);
  }
  return static_cast<double>(most) * 1e-9;
}

double Gains::share(const Change& change) const {
  const double before = total_s(*recorded_);
  const auto after = replay(program_, change);
  return before > 0 && after ? std::clamp(1 - total_s(*after) / before, 0.0, 1.0) : 0.0;
}

double Gains::share_of(const std::vector<Remedy>& remedies) const {
  return share(change_of(remedies));
}

double Gains::share_without_late(std::span<const std::int32_t> lanes) const {
  Change change{.cuts_ns = no_cuts(program_)};
  for (const std::int32_t lane : lanes) lateness_.cut(change.cuts_ns, lane);
  return share(change);
}

Ceilings Gains::ceilings() const {
  Ceilings c;
  for (std::size_t r = 0; r < kRemedies; ++r) c[r] = share_of({static_cast<Remedy>(r)});
  return c;
}

std::vector<SharedGain> Gains::shared(const Ceilings& alone) const {
  constexpr double kWorthSaying = 0.005;
  std::vector<SharedGain> found;
  for (std::size_t i = 0; i < kRemedies; ++i)
    for (std::size_t j = i + 1; j < kRemedies; ++j) {
      if (alone[i].value_or(0) < kWorthSaying || alone[j].value_or(0) < kWorthSaying) continue;
      const auto one = static_cast<Remedy>(i), other = static_cast<Remedy>(j);
      const double twice = *alone[i] + *alone[j] - share_of({one, other});
      if (twice >= kWorthSaying) found.push_back({one, other, twice});
    }
  return found;
}

/// Mean over ranks.
std::map<std::int64_t, double> Gains::step_lengths_s(const Borders& borders) const {
  std::map<std::int64_t, std::pair<double, int>> sums;
  for (std::size_t l = 0; l < borders.size(); ++l)
    for (const StepWindow& s : program_.lanes[l].steps) {
      auto& [sum, count] = sums[s.number];
      sum += static_cast<double>(borders[l][s.to] - borders[l][s.from]) * 1e-9, ++count;
    }
  std::map<std::int64_t, double> lengths;
  for (const auto& [number, sum] : sums) lengths[number] = sum.first / sum.second;
  return lengths;
}

std::map<std::int64_t, StepGain> Gains::by_step() const {
  const auto before = step_lengths_s(*recorded_);
  const auto gain = [&](const std::vector<Remedy>& remedies) {
    auto gains = before;
    if (const auto after = replay(program_, change_of(remedies))) {
      const auto lengths = step_lengths_s(*after);
      for (auto& [number, s] : gains) s -= lengths.at(number);
    }
    return gains;
  };
  const auto transfer = gain({Remedy::infinitely_fast_network});
  const auto wait = gain({Remedy::no_stragglers});
  const auto both = gain({Remedy::infinitely_fast_network, Remedy::no_stragglers});
  std::map<std::int64_t, StepGain> all;
  for (const auto& [number, s] : before)
    all[number] = {transfer.at(number), wait.at(number), both.at(number)};
  return all;
}

}  // namespace linerate::trace
