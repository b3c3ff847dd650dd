// Tells people which collectives of priced Plans were not measured: other ones, or other sizes.
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
  /// Adds nothing if the Cluster has no measurements.
  void add(const doc::Plan& plan, const CostModel& model);
  /// Which closed form prices all-reduces of so many ranks, if one does.
  void add_closed_form(const CostModel& model, int ranks);
  /// What others were told.
  void add(const PriceNotes& others);

  /// At most a sentence for each of these: all-reduces priced by a closed form alone, collectives
  /// priced from measured all-reduces, collectives priced by closed forms next to measured ones,
  /// and sizes outside those measured.
  std::vector<std::string> sentences() const;

 private:
  struct Sizes {
    double from, to;
  };
  /// The sizes sent and those measured, if the former go further.
  struct Outside {
    Sizes sent, measured;
  };
  void add(Collective collective, double asked, const CostCurve& curve);
  std::string closed_form_sentence() const;
  void widen(Collective measured, const Outside& by);

  std::map<Collective, std::set<Collective>> derived_{};  // by what was measured
  std::set<Collective> unmeasured_;
  std::string closed_form_;                // by name; empty: none prices
  std::map<int, double> trees_up_to_{};    // by ranks: the size up to which a tree is shorter
  std::map<Collective, Outside> outside_;  // by what was measured
};

}  // namespace linerate::cost
