#include "linerate/plan/registry.hpp"

#include <algorithm>

namespace linerate::plan {

std::string_view name_of(PlansBy by) {
  constexpr std::string_view names[] = {"nothing", "order", "times", "cost"};
  return names[static_cast<std::size_t>(by)];
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

const Registry<ExchangeEntry>& exchanges() {
  static const Registry<ExchangeEntry> registry(
      "strategy",
      {{"bulk",
        {make_bulk, {.plans_by = PlansBy::nothing}},
        "One all-reduce of everything, after backward.",
        "the textbook baseline"},
       {"ddp",
        {make_ddp, {.plans_by = PlansBy::order}},
        "Buckets of 25 MiB in ready order, the first of 1 MiB, sent while backward goes on.",
        "Li et al. 2020, PyTorch Distributed (VLDB)"},
       {"horovod",
        {make_horovod, {.plans_by = PlansBy::times}},
        "Buffers of 64 MiB or 5 ms; timer=arrival as Zhang et al. read it, timer=clock as it runs.",
        "Sergeev & Del Balso 2018, Horovod; Zhang et al. 2020 (arXiv 2006.10103)"},
       {"mg-wfbp",
        {make_mg_wfbp, {.plans_by = PlansBy::cost}},
        "Merges a gradient into the next one where waiting costs less than a start-up (greedy).",
        "Shi, Chu & Li 2019, MG-WFBP (INFOCOM)"},
       {"optimal",
        {make_optimal, {.plans_by = PlansBy::cost}},
        "The contiguous buckets that finish first, by an exact O(L^2) dynamic program over the "
        "cost model.",
        "the problem of Shi, Chu & Li 2019, solved exactly"},
       {"dear",
        {make_dear, {.plans_by = PlansBy::order, .needs_summable = true}},
        "Reduce-scatter under backward, all-gather under the next forward pass.",
        "Zhang et al. 2023, DeAR (arXiv 2302.12445)"}});
  return registry;
}

const Registry<ExtraEntry>& extras() {
  static const Registry<ExtraEntry> registry(
      "extra",
      {{"codec",
        {Extra::codec,
         {.changes_convergence = true,
          .runs = {.train = false},
          .why_not_train = "it states a compressor by its numbers alone: there is nothing to run"}},
        "Any compression by its numbers: codec(ratio=8, encode=10GB/s, decode=12GB/s, "
        "exchange=sum|gather).",
        "what-if of Agarwal et al. 2021 (arXiv 2103.00543)"}});
  return registry;
}

namespace {

const RegistryLine<ExtraEntry>& line_of(Extra extra) {
  return *std::find_if(extras().lines().begin(), extras().lines().end(),
                       [extra](const auto& line) { return line.make.extra == extra; });
}

}  // namespace

const ExtraEntry& entry_of(Extra extra) { return line_of(extra).make; }
std::string_view name_of(Extra extra) { return line_of(extra).name; }
bool is(const doc::Component& component, Extra extra) { return component.name == name_of(extra); }

}  // namespace linerate::plan
