#include "linerate/plan/registry.hpp"

#include <algorithm>

// The strategies, a line each, as `linerate list strategies` prints them: the names of their files
// in exchange/.
#define LINERATE_STRATEGIES(STRATEGY) \
  STRATEGY(bulk)                      \
  STRATEGY(ddp)                       \
  STRATEGY(horovod)                   \
  STRATEGY(mg_wfbp)                   \
  STRATEGY(optimal)                   \
  STRATEGY(dear)

namespace linerate::plan {

#define LINERATE_DECLARE(file) ExchangeLine strategy_##file();
LINERATE_STRATEGIES(LINERATE_DECLARE)
#undef LINERATE_DECLARE

const Registry<ExchangeEntry>& exchanges() {
#define LINERATE_LINE(file) strategy_##file(),
  static const Registry<ExchangeEntry> registry("strategy", {LINERATE_STRATEGIES(LINERATE_LINE)});
#undef LINERATE_LINE
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
