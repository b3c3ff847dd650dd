// What a remedy could gain at most: the job's program replayed without the cause, no other task
// shorter than recorded.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/replay.hpp"

namespace linerate::trace {

enum class Remedy : std::uint8_t {
  infinitely_fast_network,
  no_stragglers,
  perfect_overlap,
  no_host_gaps,
  no_data_stalls
};
inline constexpr std::size_t kRemedies = 5;
inline constexpr std::array<std::string_view, kRemedies> kRemedyNames = {
    "infinitely fast network", "no late ranks", "perfect overlap", "no host gaps",
    "data always there"};
inline constexpr std::array<std::string_view, kRemedies> kRemedyKeys = {
    "infinitely_fast_network", "no_stragglers", "perfect_overlap", "no_host_gaps",
    "no_data_stalls"};
constexpr std::string_view name_of(Remedy r) { return kRemedyNames[static_cast<std::size_t>(r)]; }
constexpr std::string_view key_of(Remedy r) { return kRemedyKeys[static_cast<std::size_t>(r)]; }

/// As a share of the step; absent: unknown.
using Ceilings = std::array<std::optional<double>, kRemedies>;
constexpr std::optional<double>& ceiling_of(Ceilings& c, Remedy r) {
  return c[static_cast<std::size_t>(r)];
}
constexpr const std::optional<double>& ceiling_of(const Ceilings& c, Remedy r) {
  return c[static_cast<std::size_t>(r)];
}

/// Two remedies that gain less together than the sum of what each gains alone.
struct SharedGain {
  Remedy one = Remedy::infinitely_fast_network, other = Remedy::infinitely_fast_network;
  double share = 0;  // of the step: counted twice in that sum
};

/// Seconds that a step becomes shorter.
struct StepGain {
  double transfer_s = 0;       // data moves in no time
  double wait_s = 0;           // every rank comes with the first one
  double communication_s = 0;  // both
};

/// Replays, each over all steps but those left out.
class Gains {
 public:
  /// Nothing is known if communications wait for each other in a circle: no replay.
  Gains(const Program& program, const Lateness& lateness, std::set<std::int64_t> left_out);

  bool known() const { return recorded_.has_value(); }
  /// The gain of these together; requires known().
  double share_of(const std::vector<Remedy>& remedies) const;
  Ceilings ceilings() const;
  std::vector<SharedGain> shared(const Ceilings& alone) const;
  /// By number of the step.
  std::map<std::int64_t, StepGain> by_step() const;
  /// The gain if each of these ranks in turn came with the median of the others.
  double share_without_late(std::span<const std::int32_t> lanes) const;

 private:
  using Borders = std::vector<std::vector<std::int64_t>>;

  Change change_of(const std::vector<Remedy>& remedies) const;
  double total_s(const Borders& borders) const;
  double share(const Change& change) const;
  std::map<std::int64_t, double> step_lengths_s(const Borders& borders) const;

  const Program& program_;
  const Lateness& lateness_;
  std::set<std::int64_t> left_out_;
  std::optional<Borders> recorded_;
};

}  // namespace linerate::trace
