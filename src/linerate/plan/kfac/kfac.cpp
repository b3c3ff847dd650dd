// Reads kfac(...): which of the published methods, and what differs from it. The sharing is the
// value without a key, and it decides what the other options may be. An example: kfac(d) inverts
// everything everywhere, so a placement makes no sense there and is refused, not ignored.
#include "linerate/plan/kfac/kfac.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/option_reader.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {
namespace {

constexpr std::int64_t kLongestInterval = 10'000;  // schedules list every step of a cycle

// By the order of their enums.
const std::vector<std::string> kSharings = {"d", "mpd", "mem", "hybrid", "spd", "dp"};
const std::vector<std::string> kFusions = {"optimal", "greedy", "none", "bulk"};
const std::vector<std::string> kPlacements = {"search", "lbp2021", "lpt", "round-robin"};

/// The sharing: the value without a key.
Sharing sharing_of(const doc::Component& component) {
  const auto unnamed = std::ranges::count_if(
      component.options, [](const auto& option) { return option.first.empty(); });
  if (unnamed > 1)
    throw UsageError(fmt::format("strategy {}: expected one of {} and options, found {}",
                                 component.name, join(kSharings, ", "), doc::to_text(component)));
  const std::string* text = component.find("");
  if (!text) return Sharing::spd;
  const auto found = std::find(kSharings.begin(), kSharings.end(), *text);
  if (found == kSharings.end())
    throw UsageError(fmt::format("strategy {}: expected one of {}, found \"{}\"", component.name,
                                 join(kSharings, ", "), *text));
  return static_cast<Sharing>(found - kSharings.begin());
}

/// Methods published with a message for each inverse keep it.
bool fuses_by_default(const Kfac& kfac) {
  return kfac.sharing != Sharing::mpd && kfac.placement != InversePlacement::threshold;
}

/// The choices among `all` that this sharing has; the first one is its default.
template <typename Choice>
Choice choice(doc::OptionReader& options, const char* key, const std::vector<std::string>& all,
              const std::vector<Choice>& known) {
  std::vector<std::string> words;
  for (const Choice c : known) words.push_back(all[to_index(c)]);
  return known[options.choice(key, words)];
}

// Defaults are those of the method's paper; SPD-KFAC is the one that fuses and places by cost.
std::vector<FactorFusion> fusions_of(Sharing sharing) {
  using enum FactorFusion;
  return sharing == Sharing::spd ? std::vector{optimal, greedy, none, bulk}
                                 : std::vector{bulk, none};
}
std::vector<InversePlacement> placements_of(Sharing sharing) {
  using enum InversePlacement;
  return sharing == Sharing::spd ? std::vector{search, threshold, longest_first, in_turn}
                                 : std::vector{longest_first, in_turn};
}

/// A count from 1 to kLongestInterval; absent if the strategy does not say it.
std::optional<std::int64_t> counted(doc::OptionReader& options, const doc::Component& component,
                                    const char* key, const char* what) {
  const std::int64_t count = options.integer(key, 1);
  if (count < 1 || count > kLongestInterval)
    options.refuse(key, fmt::format("1 to {} {}", kLongestInterval, what));
  return component.find(key) ? std::optional(count) : std::nullopt;
}

bool is_on(doc::OptionReader& options, const char* key, bool otherwise) {
  return options.choice(key, {"on", "off"}, otherwise ? 0 : 1) == 0;
}

// Inverses are made of averages. A step that inverts but averages nothing new would invert the same
// once more, so one interval divides the other.
void read_intervals(doc::OptionReader& options, const doc::Component& component, Kfac& kfac) {
  const auto factors = counted(options, component, "factors", "steps");
  const Intervals all = intervals_of(factors, counted(options, component, "inverses", "steps"));
  kfac.factor_interval = all.factors;
  kfac.inverse_interval = all.inverses;
  if (kfac.inverse_interval % kfac.factor_interval != 0)
    options.refuse("inverses", fmt::format("a multiple of factors={}", kfac.factor_interval));
}

/// Options that belong to one sharing or placement alone.
void read_special(doc::OptionReader& options, const doc::Component& component, Kfac& kfac) {
  kfac.fraction = options.number("fraction").value_or(kfac.fraction);
  kfac.theta = options.integer("theta", kfac.theta);
  if (component.find("fraction") && kfac.sharing != Sharing::hybrid)
    options.fail("fraction", "it belongs to kfac(hybrid); leave it out");
  if (!(kfac.fraction > 0 && kfac.fraction <= 1)) options.refuse("fraction", "above 0, at most 1");
  if (component.find("theta") && kfac.placement != InversePlacement::threshold)
    options.fail("theta", "it belongs to placement=lbp2021; leave it out");
  if (kfac.theta < 0) options.refuse("theta", "a dimension, at least 0");
  if (component.find("placement") && kfac.sharing == Sharing::d)
    options.fail("placement", "kfac(d) inverts everything on every rank; leave it out");
  if (component.find("fusion") && kfac.sharing == Sharing::dp)
    options.fail("fusion", "kfac(dp) sends no factors; leave it out");
  if (component.find("broadcasts") && kfac.sharing == Sharing::d)
    options.fail("broadcasts", "kfac(d) sends neither inverses nor directions; leave it out");
}

// What linerate lacks is refused by its name, with what there is in its place: other
// implementations have such options.
void read_numbers(doc::OptionReader& options, const doc::Component& component, Kfac& kfac) {
  if (component.find("lm"))
    options.fail("lm",
                 "linerate has no Levenberg-Marquardt damping; leave it out and say damping=, in "
                 "C++ as a function of the step");
  kfac.damping = options.number("damping").value_or(kfac.damping);
  kfac.decay = options.number("decay").value_or(kfac.decay);
  kfac.kl = options.number("kl").value_or(kfac.kl);
  kfac.largest = options.integer("largest", kfac.largest);
  const std::int64_t subsample = options.integer("subsample", kfac.subsample);
  if (subsample < 1 || subsample > 16) options.refuse("subsample", "1 to 16");
  kfac.subsample = static_cast<int>(subsample);
  kfac.accumulate = counted(options, component, "accumulate", "backward passes of a step");
  if (const std::string* const fisher = component.find("fisher"); fisher && *fisher == "exact")
    options.fail("fisher", "linerate has no exact Fisher; fisher=mc draws labels from the model");
  kfac.samples_labels = options.choice("fisher", {"empirical", "mc"}) == 1;
  if (kfac.largest < 1) options.refuse("largest", "a dimension, at least 1");
  if (!(kfac.damping > 0)) options.refuse("damping", "above 0");
  if (!(kfac.decay >= 0 && kfac.decay < 1)) options.refuse("decay", "0 to below 1");
  if (!(kfac.kl >= 0)) options.refuse("kl", "at least 0 (0 clips nothing, as clip=off does)");
  if (component.find("kl") && kfac.kl > 0 && !kfac.clips)
    options.fail("kl", "clip=off clips nothing; leave it out");
  if (component.find("clip") && kfac.kl == 0 && kfac.clips)
    options.fail("kl", "clip=on needs a bound above 0");
  kfac.clips = kfac.clips && kfac.kl > 0;
}

}  // namespace

// factors=10 alone means both every 10 steps. inverses=100 alone means factors in every step, and
// inverses every 100.
Intervals intervals_of(std::optional<std::int64_t> factors, std::optional<std::int64_t> inverses) {
  if (factors) return {*factors, inverses.value_or(*factors)};
  if (inverses) return {1, *inverses};
  return {};
}

Kfac Kfac::parse(const doc::Component& component) {
  Kfac kfac;
  kfac.sharing = sharing_of(component);
  doc::Component named = component;
  std::erase_if(named.options, [](const auto& option) { return option.first.empty(); });
  doc::OptionReader options(named);
  kfac.fusion = choice(options, "fusion", kFusions, fusions_of(kfac.sharing));
  kfac.placement = choice(options, "placement", kPlacements, placements_of(kfac.sharing));
  kfac.fuses_broadcasts =
      options.choice("broadcasts", {"fused", "single"}, fuses_by_default(kfac) ? 0 : 1) == 0;
  read_intervals(options, component, kfac);
  read_special(options, component, kfac);
  kfac.eigen = options.choice("inverse", {"cholesky", "eigen"}) == 1;
  kfac.clips = is_on(options, "clip", true);
  kfac.norms = is_on(options, "norms", false);
  kfac.embeddings = is_on(options, "embeddings", false);
  read_numbers(options, component, kfac);
  options.finish();
  return kfac;
}

bool Kfac::takes_kind(doc::BlockKind kind) const {
  if (kind == doc::BlockKind::unit_wise) return norms;
  return kind != doc::BlockKind::embedding || embeddings;
}

bool Kfac::takes(const doc::Block& block) const {
  return takes_kind(block.kind) && largest_dimension(block) <= largest;
}

bool Kfac::finds_too_large(const doc::Block& block) const {
  return takes_kind(block.kind) && largest_dimension(block) > largest;
}

// With `mem` and `dp` one rank holds a layer's inverses, and with `hybrid` a share of the ranks.
// Otherwise every rank gets all inverses. An example: 8 ranks with fraction=0.25 have 2 rows and 4
// columns. fraction=0.4 would be 3 rows, which do not divide 8: it is refused.
int Kfac::rows_of_grid(int ranks) const {
  switch (sharing) {
    case Sharing::mem:
    case Sharing::dp:
      return 1;
    case Sharing::hybrid:
      break;
    default:
      return ranks;
  }
  const int rows = std::max(1, static_cast<int>(std::lround(ranks * fraction)));
  if (ranks % rows != 0)
    throw UsageError(
        fmt::format("strategy kfac(hybrid): fraction: {} of {} ranks are {}, which do not divide "
                    "them; choose a fraction that leaves equal columns, such as fraction=1/{}",
                    fraction, ranks, rows, ranks));
  return rows;
}

// The kinds of steps. An example: factors=10, inverses=100. Step 0 does both, steps 10 to 90
// average factors alone, and all others use inverses as they are.
std::vector<CurvatureUpdate> Kfac::updates() const {
  std::vector<CurvatureUpdate> all = {{true, true}};
  if (inverse_interval > factor_interval) all.push_back({true, false});
  if (factor_interval > 1) all.push_back({false, false});
  return all;
}

std::string_view name_of(InversePlacement placement) { return kPlacements[to_index(placement)]; }

std::string_view name_of(const CurvatureUpdate& update) {
  return update.inverses ? "" : update.factors ? doc::kFactorsOnly : doc::kStale;
}

// The first one counts: a strategy has one preconditioner.
std::optional<Kfac> kfac_of(const doc::Strategy& strategy) {
  for (const doc::Component& extra : with_exchange(strategy).extras)
    if (is(extra, Extra::curvature)) return Kfac::parse(extra);
  return std::nullopt;
}

// kfac(spd) alone is ddp+kfac(spd), and fp16 is ddp+fp16: gradients are exchanged in any case.
// `auto` alone is none of these: training chooses the exchange by it.
doc::Strategy with_exchange(doc::Strategy strategy) {
  const auto is_one_of = [&](auto... extras) { return (is(strategy.exchange, extras) || ...); };
  if (!is_one_of(Extra::curvature, Extra::compressor, Extra::codec)) return strategy;
  strategy.extras.insert(strategy.extras.begin(), std::move(strategy.exchange));
  strategy.exchange = {"ddp", {}};
  return strategy;
}

}  // namespace linerate::plan
