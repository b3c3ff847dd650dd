// Advice: candidate strategies for one job on one cluster, ranked, with what would change the
// answer.
// Thread safety: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/doc/prediction.hpp"

namespace linerate::doc {

/// ranked: compared by time to target. unranked: changes convergence and no steps-to-target ratio
/// is known. does_not_fit: needs more memory than there is. failed: could not be planned; the
/// reason says why.
enum class Standing { ranked, unranked, does_not_fit, failed };

/// How far predictions may be trusted. unchecked: the step of the strategy in use was not measured.
/// checked: it was, and lies in the interval of its prediction, or outside by less than a quarter
/// of what the fastest strategy gains. low: it was, and does not.
enum class Confidence { unchecked, checked, low };

/// One strategy that was considered.
struct Candidate {
  std::string strategy;  // canonical text
  std::string named;     // in the words of Advice::framework; empty: linerate's, `strategy`
  std::string family;    // the same for settings of one exchange, wire type and compression
  Standing standing = Standing::ranked;   // in the ranking
  std::optional<Bounded> step_s;          // predicted
  std::optional<double> communication_s;  // network time of a step, hidden or not
  // of the step: doc/scaling_factor.hpp
  std::optional<double> exposed_communication_s;
  // ratio of steps to the uncompressed run; absent: unknown
  std::optional<Bounded> steps_to_target;
  // step_s x steps_to_target: what the ranking compares
  std::optional<Bounded> target_s;
  // target_s over the current strategy's, both at the same end of what their costs may be
  std::optional<Bounded> over_current = {};
  // peak per rank beyond the model: buckets, payloads, residuals, factors
  double memory_bytes = 0;
  bool trains = true;  // false: `linerate train` refuses it; it is only predicted
  std::string reason;  // a sentence for each fact
};

/// What the best possible form of one remedy would do for the current strategy.
struct Ceiling {
  std::string remedy;  // "infinite bandwidth", "zero encode cost", "perfect overlap"
  Bounded step_s;      // no such remedy can give a shorter one than its low end
  std::string reason;  // one sentence
};

/// The answer changes somewhere in (low, high); below and above are the strategies that win on
/// either side.
struct TurningPoint {
  std::string quantity;      // "bandwidth_bit_per_s"; in older documents also "compression_ratio"
  double low = 0, high = 0;  // between which the answer changes, in the quantity's unit
  std::string below, above;  // canonical texts

  /// Whether the quantity is the network's bandwidth.
  bool of_bandwidth() const { return quantity == "bandwidth_bit_per_s"; }
};

/// A rank that holds the others up.
struct Straggler {
  int rank = 0;       // its number
  double late_s = 0;  // longer than the Workload's step, for itself
  // of the current strategy, if this rank and those before it in the list were as fast as the
  // Workload says
  double step_s = 0;
  std::string reason;  // one sentence
};

/// What to do.
enum class AdviceVerdict { do_nothing, change, inconclusive };

/// Schema 1.
struct Advice {
  std::string workload, cluster;                      // their names
  int ranks = 0;                                      // of the job
  double bandwidth_bit_per_s = 0;                     // of the network, per direction
  double one_rank_step_s = 0;                         // T_1
  std::string current;                                // the strategy in use
  AdviceVerdict verdict = AdviceVerdict::do_nothing;  // what to do
  std::string best;                               // what to use; while inconclusive, the fastest
  std::string sentence;                           // the same in words
  std::optional<double> measured_step_s = {};     // T_n of the job, if it was measured
  Confidence confidence = Confidence::unchecked;  // low: nothing is advised as certain
  std::string present = {};    // measured and predicted step in words; empty: not measured
  std::string framework = {};  // whose strategies are candidates; empty: linerate's
  std::string beyond = {};     // what linerate's other strategies would gain, a sentence
  // ranked first, best first; then unranked, does_not_fit, failed
  std::vector<Candidate> candidates;
  std::vector<Ceiling> ceilings;             // one a remedy
  std::vector<TurningPoint> turning_points;  // by quantity, ascending
  std::vector<std::string> notes;            // what was not known and what it means
  std::vector<Straggler> stragglers = {};    // slowest first

  /// A strategy as its candidate is named; canonical if it is none.
  std::string named(const std::string& strategy) const;
};

[[nodiscard]] std::string_view name_of(Standing);
[[nodiscard]] std::string_view name_of(AdviceVerdict);  // "do nothing", "change", "inconclusive"
[[nodiscard]] std::string_view name_of(Confidence);
[[nodiscard]] std::string to_json(const Advice&);
/// Throws InputError with the JSON path of what is wrong.
[[nodiscard]] Advice advice_from_json(const std::string& text, const std::string& place);

}  // namespace linerate::doc
