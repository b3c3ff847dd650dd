#include "linerate/whatif/step_parts.hpp"

#include <cmath>

#include "linerate/plan/up_to.hpp"

namespace linerate::whatif {
namespace {

constexpr double kStepRounding = 1e-12;

}  // namespace

// Takes a step apart by exclusion. The Plan is simulated with its first part alone, then with the
// first two, and so on; each part takes what its step is longer. An example: forward and backward
// alone take 100 ms, with the exchange of gradients 112 ms, and with the computation of factors 130
// ms. The exchange has 12 ms and the factors 18 ms. Communication that hides has no time of its
// own.
doc::StepParts step_parts(const doc::Plan& plan, const cost::CostModel& model, double step_s,
                          sim::Simulator& simulator) {
  doc::StepParts parts{};
  double before = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const bool whole = p + 1 == parts.size();
    const double with =
        whole ? step_s : simulator.step_s(plan::up_to(plan, static_cast<doc::StepPart>(p)), model);
    // Sums of the same durations in another order differ in their last digits.
    if (std::abs(with - before) > kStepRounding * step_s) parts[p] = with - before;
    before = with;
  }
  return parts;
}

}  // namespace linerate::whatif
