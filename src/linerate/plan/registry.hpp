// The strategies by name, and what others ask about them: what `linerate list strategies` prints.
// Nothing outside this registry compares a strategy's name.
#pragma once

#include <string_view>
#include <vector>

#include "linerate/core/registry.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {

/// What of a measured step the plan depends on; each includes the ones before it.
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
  bool changes_convergence = false;  // its steps are other steps than the uncompressed ones
  bool needs_summable = false;       // works on payloads that can be summed alone
  Runs runs = {};
  std::string_view why_not_train = {};  // where it cannot
};

struct ExchangeEntry {
  ExchangeMaker make;
  Traits traits;
};
const Registry<ExchangeEntry>& exchanges();

/// What may follow an exchange behind '+'.
enum class Extra { codec };
struct ExtraEntry {
  Extra extra;
  Traits traits;
};
const Registry<ExtraEntry>& extras();
const ExtraEntry& entry_of(Extra extra);
std::string_view name_of(Extra extra);
/// Whether a component behind '+' is this one.
bool is(const doc::Component& component, Extra extra);

}  // namespace linerate::plan
