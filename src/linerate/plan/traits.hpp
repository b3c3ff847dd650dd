// What others ask about a strategy before it plans anything.
#pragma once

#include <string_view>
#include <vector>

namespace linerate::plan {

/// What the plan depends on in a measured step; each includes the ones before it.
enum class PlansBy { nothing, order, times, cost };
std::string_view name_of(PlansBy by);

/// Which interpreters of a Plan can carry a strategy out.
struct Runs {
  bool simulate = true, rehearse = true, train = true;

  std::vector<std::string_view> names() const;
  Runs operator&&(const Runs& other) const;
};

struct Traits {
  PlansBy plans_by = PlansBy::nothing;
  bool changes_convergence = false;  // its steps differ from the uncompressed ones
  bool needs_summable = false;       // works on payloads that can be summed alone
  Runs runs = {};
  std::string_view why_not_train = {};  // if it cannot
};

}  // namespace linerate::plan
