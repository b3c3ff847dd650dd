// Collects what is not measured in the prices of Plans. add() looks at each collective's size once,
// by the curve that prices it. It notes a collective that was derived from another one or is priced
// by a closed form. It notes a size outside those measured, and the closed form of all-reduces.
// Sets and ranges are merged, so one sentence covers any number of Plans.
#include "linerate/cost/price_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "linerate/core/text.hpp"
#include "linerate/cost/fitted.hpp"
#include "linerate/cost/model_curve.hpp"

namespace linerate::cost {
namespace {

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
void PriceNotes::add(Collective collective, double asked, const CostCurve& curve) {
  if (!curve.fitted) {
    unmeasured_.insert(collective);
    return;
  }
  const TableLaw& law = curve.fitted.law();
  const double bytes = asked * curve.fitted.share();
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
  if (!closed_form_.empty()) all.push_back(closed_form_sentence());
  for (const auto& [source, derived] : derived_)
    all.push_back(
        fmt::format("Derived: {} not measured. The cost of the measured {}s stands in, converted "
                    "by message steps and bytes.",
                    names_of(derived), name_of(source)));
  if (!unmeasured_.empty())
    all.push_back(fmt::format(
        "Not measured: {}. A formula over the Cluster's link prices it, and its error is unknown.",
        names_of(unmeasured_)));
  for (const auto& [collective, outside] : outside_)
    all.push_back(
        fmt::format("Extrapolated: messages of {} are outside the measured sizes of {}, {}. The "
                    "nearest measured sizes are continued.",
                    sizes(outside.sent.from, outside.sent.to), name_of(collective),
                    sizes(outside.measured.from, outside.measured.to)));
  return all;
}

}  // namespace linerate::cost
