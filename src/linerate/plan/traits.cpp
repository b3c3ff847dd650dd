#include "linerate/plan/traits.hpp"

#include "linerate/core/index.hpp"

namespace linerate::plan {

std::string_view name_of(PlansBy by) {
  constexpr std::string_view names[] = {"nothing", "order", "times", "cost"};
  return names[to_index(by)];
}

std::vector<std::string_view> Runs::names() const {
  std::vector<std::string_view> all;
  if (simulate) all.push_back("simulate");
  if (rehearse) all.push_back("rehearse");
  if (train) all.push_back("train");
  return all;
}

Runs Runs::operator&&(const Runs& other) const {
  return {simulate && other.simulate, rehearse && other.rehearse, train && other.train};
}

}  // namespace linerate::plan
