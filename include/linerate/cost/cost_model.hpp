// Prices collectives over a Cluster, by fitted tables if there are any, else by closed forms over
// its links. Both take the overrides that a what-if asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::cost {

struct CostCurve;
struct FittedMove;
struct FittedPart;
struct Line;
struct LinkCost;

/// The source of an answer.
enum class PriceSource {
  links,         // closed forms over links that were given
  measured,      // at this rank count
  interpolated,  // between two measured rank counts
  other_ranks    // by the collective's law from another rank count
};

/// A slower line than 1 bit/s is a typo; its steps would take ages that no clock counts.
inline constexpr BytesPerSecond kLeastBandwidth{0.125};

/// What a what-if assumes instead of what the Cluster says.
struct CostOptions {
  std::optional<BytesPerSecond> bandwidth{};  // of the network link, per direction
  std::optional<Seconds> latency{};           // of the network link, per message step
  std::string all_reduce = "ring";            // closed form: a name of all_reduce_forms()
  /// Divides the transferred bytes, not the additions (Zhang et al. 2020).
  double compression_ratio = 1;
  /// AddEst; if given, closed-form all-reduces charge (n-1) AddEst(S/n) on the dense size.
  std::shared_ptr<const AddTable> add_table{};
};

/// Immutable and cheap to copy. Answers depend on size and rank count alone: no clock, no state.
/// Thread safety: immutable, any thread.
class CostModel {
 public:
  /// Throws UsageError for options out of range.
  explicit CostModel(doc::Cluster cluster, CostOptions options = {});

  /// The same Cluster under other options; copies no tables.
  [[nodiscard]] CostModel with(CostOptions options) const;

  /// Bytes as core/dtype.hpp defines them. One rank: 0 s. Throws InputError naming the Cluster
  /// when it has neither a fitted cost nor a bandwidth.
  [[nodiscard]] Estimate collective(Collective collective, std::int64_t bytes, int ranks,
                                    DType dtype = DType::f32) const;
  /// Whether there is anything to answer from: a fitted cost or a bandwidth.
  bool can_price(Collective collective, int ranks) const;
  /// True when answers carry a measured error.
  bool fitted(Collective collective, int ranks) const;
  /// True when nothing was measured and answers carry the spread of a kind of network.
  bool has_spread() const { return cluster_->nominal && cluster_->collectives.empty(); }
  /// Whether, besides, of the network a bandwidth alone is known. Its prices are then their own low
  /// end.
  bool is_one_sided() const { return has_spread() && cluster_->nominal->name.empty(); }
  /// The rank count of the measurement that answers; absent: none does.
  std::optional<int> measured_ranks(Collective collective, int ranks) const;
  /// Where the answer for this collective on so many ranks comes from.
  PriceSource source(Collective collective, int ranks) const;
  /// What it answers from.
  const doc::Cluster& cluster() const { return *cluster_; }
  /// What it was given besides.
  const CostOptions& options() const { return options_; }
  /// Per direction, the override included; 0: unknown. Of a measured network its goodput.
  double network_bytes_per_s() const;
  /// What its line carries, as `bandwidth` of the options means it; the goodput if nobody says.
  double line_bytes_per_s() const;

 private:
  friend CostCurve cost_curve(const CostModel&, Collective, int ranks, DType);
  struct Laws;
  CostModel(std::shared_ptr<const doc::Cluster> cluster, std::shared_ptr<const Laws> laws,
            CostOptions options);
  void check() const;
  [[nodiscard]] CostCurve curve(Collective collective, int ranks, DType dtype = DType::f32) const;
  using AllReduceForm = Line (*)(int ranks, const LinkCost&);
  FittedPart part_for(Collective collective, int ranks, DType dtype) const;
  FittedPart nearest_tables(Collective measured, Collective collective, int ranks, DType dtype,
                            bool inside, int ranks_per_node) const;
  [[nodiscard]] CostCurve by_itself(Collective collective, int ranks, DType dtype) const;
  void bound(CostCurve& curve, Collective collective, int ranks, DType dtype) const;
  /// Consecutive ranks fill the nodes.
  bool is_inside(int ranks) const;
  int nodes_of(int ranks) const;

  void price_by_links(CostCurve& curve, Collective collective, int ranks) const;
  enum class End { low, expected, high };
  Line nominal_form(Collective collective, int ranks, End end) const;
  bool has_bandwidth(int ranks) const;
  void require_bandwidth(int ranks) const;
  LinkCost between_nodes() const;
  LinkCost inside_node() const;
  Line closed_form(Collective collective, int ranks, AllReduceForm form) const;
  double half_sum(Collective collective, int ranks, DType dtype, const FittedPart& from) const;
  double floor_of(Collective collective, int ranks) const;
  FittedMove move_of(Collective collective, int ranks, bool inside) const;

  std::shared_ptr<const doc::Cluster> cluster_;
  std::shared_ptr<const Laws> laws_;
  CostOptions options_;
  AllReduceForm all_reduce_ = nullptr;
};

}  // namespace linerate::cost
