// The simulator is asked along one quantity, bandwidth or compression ratio, until the answer
// changes. The change is then bracketed by bisection, in the geometric middle, since both
// quantities span decades.
//
// An example: at 10 Gbit/s ddp wins. Going up in factors of sqrt(2), ddp wins at 14.1 and another
// strategy at 20 Gbit/s. The bisection asks at 16.8, 15.4 and so on, until the bracket is within 1
// %. A run at a rate that was asked before is taken from `known`.
#include "linerate/advise/turning_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "linerate/advise/ranking.hpp"
#include "linerate/core/side_by_side.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/units.hpp"

namespace linerate::advise {
namespace {

constexpr double kWidth = 1.01, kReach = 1000, kMostRatio = 1e4;
const double kStride = std::sqrt(2.0);

// Halves (low, high) while it is wider than kWidth. `is_low(x)` holds at low and fails at high, and
// so it does for every bracket in between.
template <typename IsLow>
std::pair<double, double> bisect(double low, double high, IsLow is_low) {
  while (high / low > kWidth) {
    const double middle = std::sqrt(low * high);
    (is_low(middle) ? low : high) = middle;
  }
  return {low, high};
}

/// How often bisect() asks at most if high / low is this factor. Each question takes the square
/// root of the factor; the logarithm halves.
std::size_t halvings(double factor) {
  return static_cast<std::size_t>(std::ceil(std::log2(std::log(factor) / std::log(kWidth)))) + 1;
}

doc::Component* codec_of(doc::Strategy& strategy) {
  for (doc::Component& c : strategy.extras)
    if (plan::is(c, plan::Extra::codec)) return &c;
  return nullptr;
}

doc::Strategy without_ratio(doc::Strategy strategy) {
  std::erase_if(codec_of(strategy)->options,
                [](const auto& option) { return option.first == "ratio"; });
  return strategy;
}

doc::Strategy at_ratio(const doc::Strategy& given, double ratio) {
  doc::Strategy strategy = without_ratio(given);
  codec_of(strategy)->options.emplace_back("ratio", fmt::format("{:.9g}", ratio));
  return strategy;
}

// One codec whatever its ratio, with every exchange that carries it.
struct CodecFamily {
  std::string text;  // without its ratio
  std::vector<doc::Strategy> strategies;
};

std::vector<CodecFamily> codecs_of(const std::vector<doc::Strategy>& strategies,
                                   const doc::Strategy& current) {
  std::vector<CodecFamily> found;
  const auto add = [&](doc::Strategy s, std::string name) {
    s = without_ratio(std::move(s));
    std::string text = doc::to_text({*codec_of(s), {}});
    if (!name.empty()) text = std::move(name);
    const auto same = std::find_if(found.begin(), found.end(),
                                   [&](const CodecFamily& c) { return c.text == text; });
    if (same == found.end())
      found.push_back({std::move(text), {std::move(s)}});
    else
      same->strategies.push_back(std::move(s));
  };
  for (const doc::Strategy& s : strategies)
    if (doc::Strategy copy = s; codec_of(copy)) add(s, "");
  if (found.empty())
    add({current.exchange, {{std::string(plan::kCodec), {}}}}, "a codec that takes no time");
  return found;
}

}  // namespace

std::size_t most_bandwidth_runs(const std::vector<doc::Strategy>& strategies,
                                const AdviseOptions& options) {
  const auto strides = static_cast<std::size_t>(std::ceil(std::log(kReach) / std::log(kStride)));
  return (1 + 2 * (strides + halvings(kStride))) * rankable(strategies, options).size();
}

std::size_t most_ratio_runs(const std::vector<doc::Strategy>& strategies,
                            const AdviseOptions& options) {
  std::size_t runs = 0;
  for (const CodecFamily& codec : codecs_of(strategies, options.current))
    runs += (2 + halvings(kMostRatio)) * codec.strategies.size();
  return runs;
}

// On the way down the roles are swapped: the bracket's low end is the rate at which another
// strategy wins.
std::vector<doc::TurningPoint> bandwidth_turning_points(
    Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
    const AdviseOptions& options) {
  const double here = options.bandwidth ? options.bandwidth->value : evaluator.line_bytes_per_s();
  if (!(here > 0)) return {};
  std::map<double, std::string> known;
  const auto wins_at = [&](double rate) -> const std::string& {
    const auto [at, is_new] = known.try_emplace(rate);
    if (is_new) at->second = winner(evaluator, strategies, BytesPerSecond{rate}, options);
    return at->second;
  };
  const std::string now = wins_at(here);
  std::vector<doc::TurningPoint> points;
  for (const double factor : {1 / kStride, kStride}) {
    double near = here;
    for (double far = here * factor; far > here / kReach && far < here * kReach; far *= factor) {
      if (wins_at(far) == now) {
        near = far;
        continue;
      }
      const bool down = factor < 1;
      const auto [low, high] = bisect(std::min(near, far), std::max(near, far),
                                      [&](double rate) { return (wins_at(rate) == now) != down; });
      points.push_back({"bandwidth_bit_per_s", low * kBitsPerByte, high * kBitsPerByte,
                        wins_at(low), wins_at(high)});
      break;
    }
  }
  return points;
}

std::vector<doc::TurningPoint> ratio_turning_points(Evaluator& evaluator,
                                                    const std::vector<doc::Strategy>& strategies,
                                                    const doc::Candidate& best,
                                                    const AdviseOptions& options,
                                                    std::vector<std::string>& notes) {
  std::vector<doc::TurningPoint> points;
  for (const CodecFamily& codec : codecs_of(strategies, options.current)) {
    const auto shortest = [&](double ratio) {
      std::vector<double> steps(codec.strategies.size(), INFINITY);
      side_by_side(steps.size(), evaluator.workers(), [&](std::size_t i, std::size_t worker) {
        const Judged j = judge(evaluator, at_ratio(codec.strategies[i], ratio), options.bandwidth,
                               options, worker);
        if (j.outcome) steps[i] = j.outcome->step_s.value;
      });
      return *std::min_element(steps.begin(), steps.end());
    };
    const auto loses = [&](double ratio) {
      return shortest(ratio) > best.step_s->value * (1 - options.least_gain);
    };
    const std::string& text = codec.text;
    if (loses(kMostRatio)) {
      notes.push_back(fmt::format("At no ratio is {} at least {:g} % faster than {}.", text,
                                  100 * options.least_gain, best.strategy));
    } else if (!loses(1)) {
      notes.push_back(fmt::format("{} has the shorter step at any ratio.", text));
    } else {
      const auto [low, high] = bisect(1, kMostRatio, loses);
      points.push_back({"compression_ratio", low, high, best.strategy, text});
    }
  }
  return points;
}

std::size_t most_full_use_runs() { return 2 + halvings(kMostRatio); }

// Whatever is left at the highest ratio does not shrink with the bytes: latency, or waiting for
// late ranks.
std::optional<double> ratio_for_full_use(Evaluator& evaluator, const AdviseOptions& options) {
  doc::Strategy coded{options.current.exchange, {{std::string(plan::kCodec), {}}}};
  std::erase_if(coded.exchange.options, [](const auto& option) { return option.first == "wire"; });
  const double most = kFullUse * evaluator.workload().one_rank_step_s();
  const auto is_long = [&](double ratio) {
    const Judged j = judge(evaluator, at_ratio(coded, ratio), options.bandwidth, options);
    return !j.outcome || j.outcome->step_s.value > most;
  };
  if (is_long(kMostRatio)) return std::nullopt;
  return is_long(1) ? bisect(1, kMostRatio, is_long).second : 1;
}

}  // namespace linerate::advise
