#include "second_order/parts.hpp"

#include <algorithm>

#include "linerate/core/intervals.hpp"

namespace linerate::bench {
namespace {

using Kinds = std::vector<doc::TaskKind>;

SpanSet spans_of(const std::vector<doc::Event>& events, const Kinds& kinds) {
  std::vector<Span> spans;
  for (const doc::Event& e : events)
    if (std::find(kinds.begin(), kinds.end(), e.kind) != kinds.end())
      spans.push_back({e.start_ns, e.end_ns});
  return union_of(std::move(spans));
}

/// Factors of layers are computed by hooks inside the passes, so they go before them.
Parts parts_of(const doc::Step& step, const std::vector<doc::Event>& events) {
  using Kind = doc::TaskKind;
  SpanSet left{{step.start_ns, step.end_ns}};
  const auto take = [&](const Kinds& kinds) {
    const SpanSet spans = spans_of(events, kinds);
    const double seconds = seconds_of(intersection_of(left, spans));
    left = difference_of(left, spans);
    return seconds;
  };
  Parts parts{.step = step.seconds()};
  parts.factors = take({Kind::factor});
  parts.inverses = take({Kind::inverse});
  parts.precondition = take({Kind::precondition});
  parts.pass = take({Kind::forward, Kind::backward});
  parts.rest = seconds_of(left);
  return parts;
}

constexpr std::array kFields{&Parts::step,     &Parts::pass,         &Parts::factors,
                             &Parts::inverses, &Parts::precondition, &Parts::rest};

}  // namespace

void add_steps(const doc::Timeline& timeline, PartsOfSteps& steps) {
  std::map<std::pair<int, int>, std::vector<doc::Event>> events;
  for (const doc::Event& e : timeline.events) events[{e.step, e.rank}].push_back(e);
  std::map<int, std::vector<std::pair<double, Parts>>> ranks;
  std::map<int, std::string> kinds;
  for (const doc::Step& s : timeline.steps) {
    ranks[s.index].push_back({1.0 / timeline.ranks, parts_of(s, events[{s.index, s.rank}])});
    const auto dot = s.variant.find('.');
    kinds[s.index] = dot == std::string::npos ? "" : s.variant.substr(dot + 1);
  }
  for (const auto& [index, of_ranks] : ranks) steps[kinds[index]].push_back(weighted(of_ranks));
}

Parts median_step(std::vector<Parts> steps) {
  std::sort(steps.begin(), steps.end(),
            [](const Parts& a, const Parts& b) { return a.step < b.step; });
  return steps.at(steps.size() / 2);
}

Parts weighted(const std::vector<std::pair<double, Parts>>& kinds) {
  Parts sum;
  for (const auto& [weight, parts] : kinds)
    for (const auto field : kFields) sum.*field += weight * parts.*field;
  return sum;
}

}  // namespace linerate::bench
