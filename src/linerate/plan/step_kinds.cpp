#include "linerate/plan/step_kinds.hpp"

#include <algorithm>
#include <numeric>
namespace linerate::plan {
namespace {

std::vector<CurvatureUpdate> updates_of(const std::optional<Kfac>& kfac) {
  return kfac ? kfac->updates() : std::vector<CurvatureUpdate>(1);
}

std::string joined(const std::string& phase, std::string_view update) {
  return phase + (phase.empty() || update.empty() ? "" : ".") + std::string(update);
}

}  // namespace

StepKinds step_kinds(const compress::Phases& phases, const std::optional<Kfac>& kfac) {
  const std::vector<CurvatureUpdate> updates = updates_of(kfac);
  const bool alone = phases.count() == 1;
  StepKinds result;
  for (int phase = 0; phase < phases.count(); ++phase)
    for (const CurvatureUpdate& update : updates)
      result.kinds.push_back(
          {joined(alone ? "" : phases.name(phase), name_of(update)), alone ? -1 : phase, update});
  const auto kind_of = [&](std::int64_t step) {
    const CurvatureUpdate update = kfac ? kfac->update_of_step(step) : CurvatureUpdate{};
    const auto at = std::find(updates.begin(), updates.end(), update) - updates.begin();
    const auto each = static_cast<std::int32_t>(updates.size());
    return phases.of_step(step) * each + static_cast<std::int32_t>(at);
  };
  std::int64_t warm = 0;
  for (const compress::Phase& phase : phases.warm_up) warm += phase.steps;
  const std::int64_t cycle = std::lcm(static_cast<std::int64_t>(phases.cycle.size()),
                                      kfac ? kfac->inverse_interval : std::int64_t{1});
  for (std::int64_t step = 0; step < warm + cycle; ++step)
    (step < warm ? result.warm_up : result.cycle).push_back(kind_of(step));
  return result;
}

}  // namespace linerate::plan
