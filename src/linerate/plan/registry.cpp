// Exchanges are files of their own; extras stand here, as a compressor is a line of
// compress/registry.cpp and brings its own text.
#include "linerate/plan/exchange.hpp"

#include <algorithm>

#include "linerate/compress/registry.hpp"

// The strategies by the names of their files in exchange/, in the order of `linerate list
// strategies`.
#define LINERATE_STRATEGIES(STRATEGY) \
  STRATEGY(bulk)                      \
  STRATEGY(ddp)                       \
  STRATEGY(wfbp)                      \
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

namespace {

// What every extra says of itself; a compressor's line and source are those of its own registry.
std::vector<RegistryLine<ExtraEntry>> all_extras() {
  std::vector<RegistryLine<ExtraEntry>> lines = {
      {std::string(kKfac),
       {Extra::curvature, {.plans_by = PlansBy::cost, .changes_convergence = true}},
       "Preconditions by Kronecker factors, shared by kfac(d|mpd|mem|hybrid|spd|dp): "
       "kfac(spd, factors=10, inverses=100), kfac(hybrid, fraction=0.5).",
       "Shi, Zhang & Li 2021, SPD-KFAC (arXiv 2107.06533); Martens & Grosse 2015"},
      {std::string(kCodec),
       {Extra::codec,
        {.changes_convergence = true,
         .runs = {.train = false},
         .why_not_train =
             "it is a compressor given only by its numbers, so there is nothing to run"}},
       "Any compression by its numbers: codec(ratio=8, encode=10GB/s, decode=12GB/s, "
       "exchange=sum|gather).",
       "what-if of Agarwal et al. 2021 (arXiv 2103.00543)"}};
  lines.push_back({std::string(kAuto),
                   {Extra::automatic, {.plans_by = PlansBy::cost, .changes_convergence = true}},
                   "Each bucket by the best of some compressors, or dense: auto(powersgd(rank=4)), "
                   "auto(topk(density=0.01), fp16), auto.",
                   "calibrate --codecs; Agarwal et al. 2021 (arXiv 2103.00543)"});
  for (const auto& c : compress::compressors().lines())
    lines.push_back({c.name, {Extra::compressor, {.changes_convergence = true}}, c.line, c.source});
  return lines;
}

}  // namespace

const Registry<ExtraEntry>& extras() {
  static const Registry<ExtraEntry> registry("codec, compressor or kfac", all_extras());
  return registry;
}

// By name alone: options do not change what an extra is.
bool is(const doc::Component& component, Extra extra) {
  return std::ranges::any_of(extras().lines(), [&](const auto& line) {
    return line.name == component.name && line.make.extra == extra;
  });
}

}  // namespace linerate::plan
