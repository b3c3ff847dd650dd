#include "linerate/evaluation/timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/units.hpp"

namespace linerate::evaluation {
namespace {

constexpr double kNoiseQuantile = 0.9;

// Step over the base's step in the same round. The rounds of an Evaluation are taken in turn, so
// whatever slows a round slows both.
std::vector<double> round_ratios(const doc::TimedRun& run, const doc::TimedRun& base) {
  std::vector<double> ratios;
  for (std::size_t r = 0; r < std::min(run.round_step_s.size(), base.round_step_s.size()); ++r)
    ratios.push_back(run.round_step_s[r] / base.round_step_s[r]);
  return ratios;
}

std::optional<double> ratio_where(const doc::TimedRun& run, const doc::TimedRun* base) {
  return base ? std::optional(ratio_to(run, *base)) : std::nullopt;
}

Compared compare(const doc::TimedRun& run, const doc::Setup& setup,
                 const std::optional<double>& noise) {
  Compared c;
  c.run = &run;
  c.to_fp32 = ratio_where(run, find(setup, doc::Role::fp32));
  c.to_sixteen_bit = ratio_where(run, find(setup, doc::Role::sixteen_bit));
  c.gains_over_fp32 = noise && c.to_fp32 && *c.to_fp32 < 1 - *noise;
  c.gains_over_both = c.gains_over_fp32 && c.to_sixteen_bit && *c.to_sixteen_bit < 1 - *noise;
  c.coding_share = (run.encode_s + run.decode_s) / step_s(run);
  if (run.communication_s > 0) c.hidden_share = 1 - run.exposed_s / run.communication_s;
  return c;
}

}  // namespace

double step_s(const doc::TimedRun& run) { return median(run.round_step_s); }

double ratio_to(const doc::TimedRun& run, const doc::TimedRun& base) {
  return median(round_ratios(run, base));
}

const doc::TimedRun* find(const doc::Setup& setup, doc::Role role) {
  const auto found = std::find_if(setup.timed.begin(), setup.timed.end(),
                                  [&](const doc::TimedRun& r) { return r.role == role; });
  return found == setup.timed.end() ? nullptr : &*found;
}

// An example: in ten rounds the second run of fp32 is off by 0 to 1 % in nine and by 4 % in one.
// The floor is about 1 %: one bad round does not hide every gain.
std::optional<double> noise_floor(const doc::Setup& setup) {
  const doc::TimedRun* base = find(setup, doc::Role::fp32);
  const doc::TimedRun* repeat = find(setup, doc::Role::repeat);
  if (!base || !repeat) return std::nullopt;
  std::vector<double> off = round_ratios(*repeat, *base);
  for (double& ratio : off) ratio = std::abs(ratio - 1);
  return quantile(off, kNoiseQuantile);
}

std::vector<Compared> compare(const doc::Setup& setup) {
  const std::optional<double> noise = noise_floor(setup);
  std::vector<Compared> all;
  for (const doc::TimedRun& run : setup.timed) all.push_back(compare(run, setup, noise));
  return all;
}

Gains count_gains(const doc::Evaluation& evaluation) {
  Gains gains;
  for (const doc::Setup& setup : evaluation.setups)
    for (const Compared& c : compare(setup)) {
      if (c.run->role != doc::Role::candidate) continue;
      ++gains.all;
      gains.over_fp32 += c.gains_over_fp32;
      gains.over_both += c.gains_over_both;
    }
  return gains;
}

std::string sentence_of(const Gains& g) {
  return fmt::format(
      "{} of {} setups gain over tuned fp32, {} of {} over the better of fp32 and the 16-bit "
      "exchange.",
      g.over_fp32, g.all, g.over_both, g.all);
}

std::size_t fastest(const std::vector<doc::TimedRun>& runs) {
  const auto least = std::min_element(
      runs.begin(), runs.end(),
      [](const doc::TimedRun& a, const doc::TimedRun& b) { return step_s(a) < step_s(b); });
  return to_index(least - runs.begin());
}

std::vector<std::string> bucket_ladder(std::int64_t gradient_bytes) {
  std::vector<std::string> sizes;
  for (const std::int64_t mib : {1, 5, 25, 100})
    if (gradient_bytes > MiB(mib).value) sizes.push_back(fmt::format("{}MiB", mib));
  return sizes;
}

}  // namespace linerate::evaluation
