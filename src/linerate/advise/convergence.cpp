// Steps to the target. A compressor's step may be shorter and its training may need more steps;
// their product is what counts. Ratios of steps come from three sources: --steps-to-target on the
// command line, a results file with steps of single runs, and an Evaluation (linerate evaluate).
//
// An entry's key fits a strategy that has its components and at least its options. The entry that
// names most options counts. An example: "topk=1.2" and "topk(density=0.01)=1.5" both fit
// ddp+topk(density=0.01), and 1.5 counts. Only 1.2 fits ddp+topk(density=0.1).
#include "linerate/advise/advise_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "linerate/compare/accuracy.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/plan/planner.hpp"

namespace linerate::advise {
namespace {

/// Whether two texts of an option are the same number, size, rate or time: "8.0" is 8, and
/// "5120KiB" is 5MiB.
bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto same = [&](auto parse) {
    try {
      return parse(a) == parse(b);
    } catch (const UsageError&) {
      return false;
    }
  };
  return same([](const std::string& text) { return parse_number(text); }) ||
         same([](const std::string& text) { return parse_size(text).value; }) ||
         same([](const std::string& text) { return parse_rate(text).value; }) ||
         same([](const std::string& text) { return parse_time(text).value; });
}

bool has_options_of(const doc::Component& key, const doc::Component& component) {
  return key.name == component.name &&
         std::all_of(key.options.begin(), key.options.end(), [&](const auto& option) {
           const std::string* value = component.find(option.first);
           return value && same_value(option.second, *value);
         });
}

// The number of options that the key names, or nothing if it does not fit. A key with an exchange
// counts one more, since it is more specific than a key that holds after any exchange.
std::optional<std::size_t> fit(const StepsToTarget& entry, const doc::Strategy& strategy) {
  const auto has_extra = [&](const doc::Component& key) {
    return std::any_of(strategy.extras.begin(), strategy.extras.end(),
                       [&](const doc::Component& c) { return has_options_of(key, c); });
  };
  if (entry.anywhere)
    return has_extra(entry.key.exchange) ? std::optional(entry.key.exchange.options.size())
                                         : std::nullopt;
  if (!has_options_of(entry.key.exchange, strategy.exchange)) return std::nullopt;
  if (entry.key.extras.size() != strategy.extras.size()) return std::nullopt;
  std::size_t named = 1 + entry.key.exchange.options.size();  // an exchange named is more specific
  for (const doc::Component& key : entry.key.extras) {
    if (!has_extra(key)) return std::nullopt;
    named += key.options.size();
  }
  return named;
}

// A key that is one codec or compressor alone holds after any exchange.
StepsToTarget entry_of(const doc::Strategy& key) {
  StepsToTarget entry;
  entry.key = key;
  entry.anywhere =
      key.extras.empty() && std::ranges::count(plan::extras().names(), key.exchange.name) > 0;
  return entry;
}

// "1.1" or "1.1[1.05,1.2]".
doc::Bounded parse_ratio(std::string_view text) {
  const std::size_t bracket = text.find('[');
  doc::Bounded ratio{parse_number(trim(text.substr(0, bracket)))};
  if (bracket != std::string_view::npos) {
    const std::size_t comma = text.find(',', bracket), end = text.find(']', bracket);
    if (comma == std::string_view::npos || end == std::string_view::npos || comma > end)
      throw UsageError("expected [low,high]");
    ratio.low = parse_number(trim(text.substr(bracket + 1, comma - bracket - 1)));
    ratio.high = parse_number(trim(text.substr(comma + 1, end - comma - 1)));
  }
  if (!(ratio.value > 0) || !(ratio.low_or_value() > 0) || ratio.low_or_value() > ratio.value ||
      ratio.value > ratio.high_or_value())
    throw UsageError("expected 0 < low <= ratio <= high");
  return ratio;
}

/// What no run has shown of a strategy.
compare::Learned unlearned(const std::string& given) {
  const doc::Strategy strategy = doc::parse_strategy(given);
  compare::Learned none;
  none.strategy = doc::to_text(strategy);
  if (!plan::traits_of(strategy).changes_convergence) none.role = doc::Role::fp32;
  return none;
}

constexpr std::string_view kRunKeys[] = {"strategy", "seed", "steps"};
constexpr std::string_view kResultsKeys[] = {"document", "schema", "target", "source", "runs"};

/// By strategy of a results file, in order of appearance. All that take the uncompressed steps are
/// what the others are compared with.
std::vector<compare::Learned> learned_of(const doc::JsonReader& results) {
  std::vector<compare::Learned> all;
  std::vector<double> dense;
  for (const doc::JsonReader& run : results.at("runs").items()) {
    compare::Learned learned = run.at("strategy").parsed(unlearned);
    auto found = std::ranges::find(all, learned.strategy, &compare::Learned::strategy);
    if (found == all.end()) found = all.insert(all.end(), std::move(learned));
    run.require_known_keys(kRunKeys);
    if (!run.has("steps")) {  // null: the run ended without the target
      (void)run.at("steps");
      ++found->missed;
      continue;
    }
    const double steps = run.at("steps").number();
    if (!(steps > 0)) run.at("steps").refuse("more than 0 steps, or null");
    found->steps_to_target.push_back(steps);
    if (found->role == doc::Role::fp32) dense.push_back(steps);
  }
  if (dense.empty())
    results.fail("no uncompressed run reached the target, so there is nothing to compare with");
  for (compare::Learned& l : all)
    if (!l.steps_to_target.empty()) l.steps_ratio = compare::steps_ratio(l.steps_to_target, dense);
  return all;
}

std::vector<compare::Learned> learned_of(const doc::Evaluation& evaluation) {
  std::vector<compare::Learned> all;
  for (const doc::Setup& setup : evaluation.setups)
    for (compare::Learned& l : compare::learned(setup)) all.push_back(std::move(l));
  return all;
}

/// The key under which a strategy's runs are pooled. Neither the cut into buckets nor the exchange
/// before a compressor changes convergence. What was learned of ddp(bucket=5MiB)+powersgd holds for
/// dear+powersgd.
doc::Strategy key_of(const std::string& strategy) {
  doc::Strategy key = doc::parse_strategy(strategy);
  std::erase_if(key.exchange.options, [](const auto& o) { return o.first == "bucket"; });
  if (key.extras.size() == 1 && key.exchange.options.empty()) return {key.extras.front(), {}};
  return key;
}

/// The entry of one strategy over all setups whose ratio is known. Its value is the median of the
/// setups' ratios, and its interval holds all of theirs. With ratios of 1.1 (1.0 .. 1.2) and 1.4
/// (1.3 .. 1.6) it is 1.25 (1.0 .. 1.6).
struct Pooled {
  StepsToTarget entry;
  std::vector<doc::Bounded> ratios;  // by setup
};

StepsToTarget entry_of(const Pooled& pooled) {
  StepsToTarget entry = pooled.entry;
  std::vector<double> values;
  for (const doc::Bounded& ratio : pooled.ratios) {
    values.push_back(ratio.value);
    // Several setups are a spread by themselves.
    if (!ratio.has_interval() && pooled.ratios.size() == 1) continue;
    entry.ratio.low = std::min(entry.ratio.low.value_or(INFINITY), ratio.low_or_value());
    entry.ratio.high = std::max(entry.ratio.high.value_or(0), ratio.high_or_value());
  }
  if (!values.empty()) entry.ratio.value = median(values);
  return entry;
}

/// The entries of compressed strategies, in order of appearance, pooled by `key_of`.
std::vector<StepsToTarget> entries_of(const std::vector<compare::Learned>& learned,
                                      doc::Strategy (*key_of)(const std::string&),
                                      const std::string& place) {
  std::vector<Pooled> all;
  for (const compare::Learned& l : learned) {
    if (!plan::traits_of(doc::parse_strategy(l.strategy)).changes_convergence) continue;
    const doc::Strategy key = key_of(l.strategy);
    auto found = std::ranges::find(all, doc::to_text(key),
                                   [](const Pooled& p) { return doc::to_text(p.entry.key); });
    if (found == all.end()) {
      found = all.insert(all.end(), {entry_of(key), {}});
      found->entry.source = place;
    }
    found->entry.missed += l.missed;
    if (l.steps_ratio) found->ratios.push_back(*l.steps_ratio);
  }
  std::vector<StepsToTarget> entries;
  for (const Pooled& pooled : all) entries.push_back(entry_of(pooled));
  return entries;
}

}  // namespace

StepsToTarget parse_steps_to_target(std::string_view text) {
  if (split_outside_parentheses(text, '=').size() < 2)  // those inside belong to options
    throw UsageError(fmt::format(
        "--steps-to-target: expected a results file or STRATEGY=RATIO[LOW,HIGH], such as "
        "\"codec(ratio=8)=1.1[1.05,1.2]\"; found \"{}\"",
        text));
  const std::size_t sign = text.rfind('=');
  try {
    StepsToTarget entry = entry_of(doc::parse_strategy(trim(text.substr(0, sign))));
    entry.ratio = parse_ratio(trim(text.substr(sign + 1)));
    entry.source = "given";
    return entry;
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("--steps-to-target: \"{}\": {}", text, e.what()));
  }
}

std::vector<StepsToTarget> steps_to_target_from_json(const std::string& text,
                                                     const std::string& place) {
  const doc::Json json = doc::parse_json(text, place);
  const doc::JsonReader given(json, place);
  if (given.has("document") && given.at("document").string() == "evaluation") {
    std::vector<StepsToTarget> entries =
        entries_of(learned_of(doc::evaluation_from_json(text, place)), key_of, place);
    if (!entries.empty()) return entries;
    throw InputError(place,
                     "expected trainings of compressed strategies, found none; run linerate "
                     "evaluate with --seeds");
  }
  doc::expect_document(given, {"steps-to-target"});
  const std::vector<compare::Learned> learned = learned_of(given);
  given.require_known_keys(kResultsKeys);
  return entries_of(
      learned, [](const std::string& s) { return doc::parse_strategy(s); }, place);
}

std::vector<StepsToTarget> read_steps_to_target(const std::string& text) {
  if (!text.ends_with(".json")) return {parse_steps_to_target(text)};
  return steps_to_target_from_json(read_file(text), text);
}

const StepsToTarget* find_steps(const std::vector<StepsToTarget>& known,
                                const doc::Strategy& strategy) {
  const StepsToTarget* best = nullptr;
  std::size_t most = 0;
  for (const StepsToTarget& entry : known) {
    const std::optional<std::size_t> named = fit(entry, strategy);
    if (named && (!best || *named > most)) best = &entry, most = *named;
  }
  return best;
}

std::vector<std::string> keys_without(const std::vector<StepsToTarget>& known,
                                      const std::vector<doc::Strategy>& strategies) {
  std::vector<std::string> keys;
  for (const StepsToTarget& entry : known)
    if (std::ranges::none_of(strategies,
                             [&](const doc::Strategy& s) { return fit(entry, s).has_value(); }))
      keys.push_back(doc::to_text(entry.key));
  return keys;
}

}  // namespace linerate::advise
