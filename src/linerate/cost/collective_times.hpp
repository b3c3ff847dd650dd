// Tells people when a prediction goes beyond what was measured.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/cost_curve.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::cost {

/// The note on a Workload whose times share out one total (doc::Workload::split_by_flops).
inline constexpr std::string_view kSplitByFlops =
    "It was not measured when gradients get ready. The step time is shared out among layers by "
    "their FLOPs, and backward takes twice as long as forward.";

/// A sentence each for slow ranks that the job does not have and for ranks that share cores.
/// Besides, if all-reduces were measured: for another rank count, bandwidth or latency than was
/// measured, and for which of a line's two rates a bandwidth is.
std::vector<std::string> extrapolation_notes(const CostModel& model, int ranks);

// The time of one collective over several rank counts and sizes.

struct CollectiveTime {
  int ranks = 1;
  Bytes size;           // core/dtype.hpp
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

// Tells people which collectives of priced Plans were not measured: other ones, or other sizes.

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
  void add(Collective collective, double bytes, const CostCurve& curve);
  std::string closed_form_sentence() const;
  void widen(Collective measured, const Outside& by);

  std::map<Collective, std::set<Collective>> derived_{};  // by what was measured
  std::set<Collective> unmeasured_;
  std::string closed_form_;                // by name; empty: none prices
  std::map<int, double> trees_up_to_{};    // by ranks: the size up to which a tree is shorter
  std::map<Collective, Outside> outside_;  // by what was measured
};

// Tells people which measurements others contradict.

/// One sentence, or none: which measured sizes are outliers. An outlier is further than
/// tolerance_at() from its price, which follows the sizes, rank counts and collectives next to it.
std::vector<std::string> outlier_notes(const CostModel& model);

// What a CostModel knows of one collective, as a curve.

/// CostModel::collective() as a function of size.
CostCurve cost_curve(const CostModel& model, Collective collective, int ranks,
                     DType dtype = DType::f32);

}  // namespace linerate::cost
