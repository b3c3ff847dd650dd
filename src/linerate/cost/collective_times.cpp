// Compares what is asked for with the measurements that answer, and says in a sentence each what
// differs: the rank count, the bandwidth, the latency. Reports print the sentences as notes.
#include "linerate/cost/collective_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/fitted.hpp"
#include "linerate/cost/network_kinds.hpp"

namespace linerate::cost {
namespace {

std::string measured_rank_counts(const doc::Cluster& cluster) {
  std::set<int> ranks;
  for (const doc::CollectiveCost& cost : cluster.collectives) ranks.insert(cost.ranks);
  return fmt::format("{}", fmt::join(ranks, ", "));
}

/// Notes on the measurements that answer for all-reduces.
std::string about_ranks(const CostModel& model, int ranks) {
  const doc::Cluster& cluster = model.cluster();
  switch (model.source(Collective::all_reduce, ranks)) {
    case PriceSource::interpolated:
      return fmt::format(
          "Interpolated: collectives were measured on {} ranks. For {}, which lie between two of "
          "them, the collective's law holds from both.",
          measured_rank_counts(cluster), ranks);
    case PriceSource::other_ranks:
      return fmt::format(
          "Extrapolated: collectives were measured on {} ranks. Other rank counts follow the "
          "collective's law on the same kind of link.",
          measured_rank_counts(cluster));
    default:
      return "";
  }
}

std::string about_bandwidth(const CostModel& model) {
  const doc::Link& network = model.cluster().network;
  const std::optional<BytesPerSecond> asked = model.options().bandwidth;
  if (!asked) return "";
  if (network.line_rate_bytes_per_s > 0)
    return asked->value == network.line_rate_bytes_per_s
               ? ""
               : fmt::format(
                     "Extrapolated: collectives were measured on a line of {}. Another line rate "
                     "scales the part of the time that grows with the size.",
                     format_bit_rate(network.line_rate_bytes_per_s));
  if (asked->value == network.bandwidth_bytes_per_s)
    return fmt::format(
        "The Cluster does not say what its line carries, so {} counts as what its collectives got "
        "of it. linerate calibrate --line-rate tells the two apart.",
        format_bit_rate(asked->value));
  return network.bandwidth_bytes_per_s > 0
             ? fmt::format(
                   "Extrapolated: collectives were measured at {}. Another bandwidth scales the "
                   "part of the time that grows with the size. The Cluster does not say what its "
                   "line carries; linerate calibrate --line-rate does.",
                   format_bit_rate(network.bandwidth_bytes_per_s))
             : "Extrapolated: the Cluster does not say which bandwidth limited its measurements, "
               "so another bandwidth can only slow them down.";
}

/// Notes which of two rates a bandwidth is.
std::string about_line(const CostModel& model) {
  const doc::Link& network = model.cluster().network;
  if (!(network.line_rate_bytes_per_s > 0 && network.bandwidth_bytes_per_s > 0)) return "";
  return fmt::format(
      "Bandwidths are those of the line. The measured collectives got {2} of {0}{1}.",
      format_bit_rate(network.line_rate_bytes_per_s),
      network.line_rate_assumed ? " (assumed; linerate calibrate --line-rate says it)" : "",
      format_bit_rate(network.bandwidth_bytes_per_s));
}

std::string about_latency(const CostModel& model) {
  const double measured = model.cluster().network.latency_s;
  const std::optional<Seconds> asked = model.options().latency;
  return !asked || asked->value == measured
             ? ""
             : fmt::format(
                   "Extrapolated: the measurements fit {} a message step. Another latency adds its "
                   "difference to each step.",
                   format_time(measured));
}

/// Notes on slow ranks that are not among so many.
std::string about_absent_ranks(const doc::Cluster& cluster, int ranks) {
  std::set<int> absent;
  for (const doc::RankSpeed& s : cluster.rank_speeds)
    if (s.rank >= ranks) absent.insert(s.rank);
  return absent.empty()
             ? ""
             : fmt::format(
                   "The Cluster's rank_speeds of {} {} have no effect, because the job has ranks 0 "
                   "to {}.",
                   absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "), ranks - 1);
}

// Answers `whatif --collective`: the time of one collective over rank counts and sizes, each with
// its interval, and notes on where the numbers come from.

std::string about_source(const CostModel& model, Collective collective, int ranks) {
  const doc::Cluster& cluster = model.cluster();
  switch (model.source(collective, ranks)) {
    case PriceSource::interpolated:
      return "between two measured rank counts, by the collective's law from both";
    case PriceSource::links:
      return cluster.collectives.empty() || cluster.ranks_per_node <= 1 ||
                     ranks <= cluster.ranks_per_node
                 ? ""
                 : fmt::format(
                       "measured inside nodes of {} ranks; beyond a node a formula over the links",
                       cluster.ranks_per_node);
    default:
      return "";
  }
}

// Collects what is not measured in the prices of Plans. add() looks at each collective's size once,
// by the curve that prices it. It notes a collective that was derived from another one or is priced
// by a closed form. It notes a size outside those measured, and the closed form of all-reduces.
// Sets and ranges are merged, so one sentence covers any number of Plans.

std::string names_of(const std::set<Collective>& collectives) {
  std::vector<std::string> names;
  for (const Collective c : collectives) names.emplace_back(name_of(c));
  return join(names, ", ");
}

std::string sizes(double from, double to) {
  return from < to ? fmt::format("{} to {}", format_size(from), format_size(to))
                   : format_size(from);
}

}  // namespace

std::vector<std::string> extrapolation_notes(const CostModel& model, int ranks) {
  std::vector<std::string> notes = shared_core_notes(model.cluster(), ranks);
  if (std::string note = about_absent_ranks(model.cluster(), ranks); !note.empty())
    notes.push_back(std::move(note));
  if (!model.measured_ranks(Collective::all_reduce, ranks)) return notes;
  for (std::string note :
       {about_ranks(model, ranks), about_line(model), about_bandwidth(model), about_latency(model)})
    if (!note.empty()) notes.push_back(std::move(note));
  return notes;
}

std::vector<std::string> shared_core_notes(const doc::Cluster& cluster, int ranks) {
  if (!cluster.cores || ranks <= *cluster.cores) return {};
  return {fmt::format(
      "{} ranks share {} cores. Computation, and collectives that run on the cores, take longer "
      "than was measured with a core for each rank, and nothing here prices that",
      ranks, *cluster.cores)};
}

CollectiveTimes collective_times(const doc::Cluster& cluster, Collective collective,
                                 const std::vector<Bytes>& sizes, const std::vector<int>& ranks,
                                 const CostOptions& options) {
  const std::vector<int> counts = ranks.empty() ? std::vector{cluster.ranks} : ranks;
  if (counts.front() < 1)
    throw UsageError("--ranks: the Cluster does not say how many; give --ranks N");
  const bool barrier = collective == Collective::barrier;
  if (sizes.empty() && !barrier)
    throw UsageError("--size: expected a size such as 64MiB, found none");
  const CostModel model(cluster, options);
  CollectiveTimes all;
  all.collective = collective;
  const int most = *std::max_element(counts.begin(), counts.end());
  const Bytes largest = barrier ? Bytes{0} : *std::max_element(sizes.begin(), sizes.end());
  const auto width_of = [&](const doc::Cluster& known) {
    const Estimate e = CostModel(known, options).collective(collective, largest.value, most);
    return e.high - e.low;
  };
  if (std::string note = nominal_note(cluster, most, width_of); !note.empty())
    all.notes.push_back(note.substr(0, note.size() - 1));  // the report ends its sentences
  for (const int n : counts) {
    std::vector<std::string> notes = shared_core_notes(cluster, n);
    if (std::string note = about_source(model, collective, n); !note.empty())
      notes.push_back(counts.size() == 1 ? note : fmt::format("{} ranks: {}", n, note));
    all.notes.insert(all.notes.end(), notes.begin(), notes.end());
    const bool fitted = model.fitted(collective, n) || (n > 1 && model.has_spread());
    for (const Bytes size : barrier ? std::vector{Bytes{0}} : sizes)
      all.times.push_back({n, size, fitted, model.collective(collective, size.value, n)});
  }
  for (std::string& note : outlier_notes(model)) all.notes.push_back(std::move(note));
  return all;
}

void PriceNotes::add(const doc::Plan& plan, const CostModel& model) {
  if (model.cluster().collectives.empty()) return;
  std::map<std::tuple<Collective, int, DType>, CostCurve> curves;
  for (const doc::TaskGraph& variant : plan.variants)
    for (const doc::Task& task : variant.tasks) {
      if (!doc::is_communication(task.kind) || task.priced_bytes() <= 0) continue;
      const int ranks = plan.group_of(task).size_of_part(0, plan.ranks);
      if (ranks <= 1) continue;
      const Collective collective = collective_of(task.kind);
      const auto [found, is_new] = curves.try_emplace({collective, ranks, task.wire});
      if (is_new) found->second = cost_curve(model, collective, ranks, task.wire);
      add(collective, static_cast<double>(task.priced_bytes()), found->second);
    }
}

void PriceNotes::add_closed_form(const CostModel& model, int ranks) {
  const auto& nominal = model.cluster().nominal;
  if (nominal && !nominal->name.empty()) return;  // its law is part of the kind
  if (ranks <= 1 || !model.can_price(Collective::all_reduce, ranks)) return;
  const CostCurve curve = cost_curve(model, Collective::all_reduce, ranks);
  if (curve.fitted) return;
  closed_form_ = model.options().all_reduce;
  double& up_to = trees_up_to_[ranks];
  up_to = std::max(up_to, curve.tree_up_to());
}

std::string PriceNotes::closed_form_sentence() const {
  if (closed_form_ != kRingOrTree)
    return fmt::format("All-reduces were not measured; a formula prices them, {}.", closed_form_);
  std::vector<std::string> trees;
  for (const auto& [ranks, bytes] : trees_up_to_)
    if (bytes > 0) trees.push_back(fmt::format("{} on {} ranks", format_size(bytes), ranks));
  constexpr std::size_t kMostNamed = 4;
  if (trees.size() > kMostNamed) trees = {trees.front(), trees.back()};
  return fmt::format(
      "All-reduces were not measured. A formula prices them: the shorter of ring and double tree, "
      "as NCCL's tuner chooses; here {}.",
      trees.empty() ? "the ring"
                    : fmt::format("the tree up to {}, above that the ring", join(trees, ", ")));
}

// Notes one size of a collective by the table that answers for it, which may be one that goes on
// from another (TableLaw::go_on_with).
void PriceNotes::add(Collective collective, double bytes, const CostCurve& curve) {
  if (!curve.fitted) {
    unmeasured_.insert(collective);
    return;
  }
  const TableLaw& law = curve.fitted.law();
  const Collective source = law.source_at(bytes).collective;
  if (source != collective) derived_[source].insert(collective);
  const MeasuredSizes& measured = law.sizes();
  if (bytes >= measured.from && bytes <= measured.to) return;
  widen(source, {{bytes, bytes}, {measured.from, measured.to}});
}

void PriceNotes::add(const PriceNotes& others) {
  for (const auto& [source, derived] : others.derived_)
    derived_[source].insert(derived.begin(), derived.end());
  unmeasured_.insert(others.unmeasured_.begin(), others.unmeasured_.end());
  if (!others.closed_form_.empty()) closed_form_ = others.closed_form_;
  for (const auto& [ranks, bytes] : others.trees_up_to_) {
    double& up_to = trees_up_to_[ranks];
    up_to = std::max(up_to, bytes);
  }
  for (const auto& [measured, outside] : others.outside_) widen(measured, outside);
}

// Joins two ranges of sizes of one collective: sent is what either sent, and measured what both
// have.
void PriceNotes::widen(Collective measured, const Outside& by) {
  const auto [found, is_new] = outside_.try_emplace(measured, by);
  if (is_new) return;
  Outside& outside = found->second;
  outside.sent = {std::min(outside.sent.from, by.sent.from), std::max(outside.sent.to, by.sent.to)};
  outside.measured = {std::max(outside.measured.from, by.measured.from),
                      std::min(outside.measured.to, by.measured.to)};
}

std::vector<std::string> PriceNotes::sentences() const {
  std::vector<std::string> all;
  std::set<Collective> unmeasured = unmeasured_;
  if (!closed_form_.empty()) {
    all.push_back(closed_form_sentence());
    unmeasured.erase(Collective::all_reduce);
  }
  for (const auto& [source, derived] : derived_)
    all.push_back(
        fmt::format("Derived: {} not measured. The cost of the measured {}s stands in, converted "
                    "by message steps and bytes.",
                    names_of(derived), name_of(source)));
  if (!unmeasured.empty())
    all.push_back(fmt::format(
        "Not measured: {}. A formula over the Cluster's link prices it, and its error is unknown.",
        names_of(unmeasured)));
  for (const auto& [collective, outside] : outside_)
    all.push_back(
        fmt::format("Extrapolated: messages of {} are outside the measured sizes of {}, {}. The "
                    "nearest measured sizes are continued.",
                    sizes(outside.sent.from, outside.sent.to), name_of(collective),
                    sizes(outside.measured.from, outside.measured.to)));
  return all;
}

// Compares every sample with the price of its own size, ranks and collective. A table that does not
// answer for its own ranks is left out: another type's or another placement's does.
std::vector<std::string> outlier_notes(const CostModel& model) {
  constexpr std::size_t kMostNamed = 3;
  const CostModel measured = model.with({});
  std::vector<std::string> named;
  std::size_t more = 0;
  for (const doc::CollectiveCost& table : model.cluster().collectives) {
    if (table.ranks < 2 || !measured.can_price(table.collective, table.ranks)) continue;
    const CostCurve curve = cost_curve(measured, table.collective, table.ranks, table.dtype);
    if (!curve.fitted || &curve.fitted.law().table() != &table) continue;  // another one answers
    for (const auto& [bytes, seconds, low_s, high_s] : table.samples) {
      const double price = curve.seconds(bytes), tolerance = tolerance_at(bytes);
      if (seconds <= tolerance * price && price <= tolerance * seconds) continue;
      if (named.size() == kMostNamed)
        ++more;
      else
        named.push_back(
            fmt::format("{}{} of {} on {} ranks, {} against {}",
                        table.dtype == DType::f32 ? "" : fmt::format("{} ", name_of(table.dtype)),
                        name_of(table.collective), format_size(bytes), table.ranks,
                        format_time(seconds), format_time(price)));
    }
  }
  if (named.empty()) return {};
  return {
      fmt::format("Outliers: measured times far from their price, which follows the sizes, rank "
                  "counts and collectives next to them: {}{}.",
                  join(named, "; "), more > 0 ? fmt::format("; and {} more", more) : "")};
}

CostCurve cost_curve(const CostModel& model, Collective collective, int ranks, DType dtype) {
  return model.curve(collective, ranks, dtype);
}

}  // namespace linerate::cost
