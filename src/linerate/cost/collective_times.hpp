// The time of one collective over several rank counts and sizes.
#pragma once

#include <string>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::cost {

struct CollectiveTime {
  int ranks = 1;
  Bytes size;           // core/collective.hpp
  bool fitted = false;  // from measurements, or by the network's kind; else the error is unknown
  Estimate time;
};

struct CollectiveTimes {
  Collective collective = Collective::all_reduce;
  std::vector<CollectiveTime> times;    // of each rank count all sizes
  std::vector<std::string> notes = {};  // what the times are based on, besides their marks
};

/// Notes of a prediction for so many ranks about cores that they share; empty: none.
std::vector<std::string> shared_core_notes(const doc::Cluster& cluster, int ranks);

/// No `ranks`: the Cluster's. A barrier has one time, of no bytes, whatever the sizes. Throws
/// UsageError if the Cluster does not say how many ranks there are.
CollectiveTimes collective_times(const doc::Cluster& cluster, Collective collective,
                                 const std::vector<Bytes>& sizes, const std::vector<int>& ranks,
                                 const CostOptions& options = {});

}  // namespace linerate::cost
