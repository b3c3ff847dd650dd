// Says for people which collectives of the Plans that were priced nobody measured: other ones, or
// other sizes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::cost {

/// Over any number of Plans, so that many predictions say a thing once.
class PriceNotes {
 public:
  /// Nothing where the Cluster measured nothing.
  void add(const doc::Plan& plan, const CostModel& model);

  /// One sentence each for collectives priced from measured all-reduces, for those priced by closed
  /// forms beside measured ones, and for sizes outside those measured.
  std::vector<std::string> sentences() const;

 private:
  struct Sizes {
    double from, to;
  };
  /// Of what is sent beside what was measured, where that goes further.
  struct Outside {
    Sizes sent, measured;
  };
  void add(const doc::Task& task, int ranks, const CostModel& model);

  std::set<Collective> derived_, unmeasured_;
  std::map<Collective, Outside> outside_;  // by what was measured
};

}  // namespace linerate::cost
