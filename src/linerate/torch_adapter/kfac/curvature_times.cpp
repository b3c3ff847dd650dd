// Takes the times of a measured step apart: the forward pass of each layer, each factor, and each
// inverse. A layer's forward time is from its input to the next layer's input, or to the first
// gradient, less the time of its factor A.
//
// Example in ms: the inputs of layers 0, 1 and 2 are seen at 0, 4 and 9, and each factor A takes 1.
// The first gradient comes at 12. So the forward passes take 3, 4 and 2.
#include "linerate/torch_adapter/kfac/curvature_times.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr std::size_t kA = to_index(doc::FactorSide::a);
constexpr std::size_t kG = to_index(doc::FactorSide::g);

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// The times of a block's factors, by side, in nanoseconds.
struct Times {
  std::array<std::int64_t, 2> began = {-1, -1};  // the first use
  std::array<std::int64_t, 2> took = {0, 0};     // of all uses
};

std::vector<Times> times_of(std::span<const FactorSpan> factors, std::size_t blocks) {
  std::vector<Times> times(blocks);
  for (const FactorSpan& span : factors) {
    Times& t = times.at(to_index(doc::block_of_factor(span.factor)));
    const auto side = to_index(doc::side_of_factor(span.factor));
    std::int64_t& began = t.began[side];
    began = began < 0 ? span.start_ns : std::min(began, span.start_ns);
    t.took[side] += span.end_ns - span.start_ns;
  }
  return times;
}

std::vector<double> took(const std::vector<Times>& times, std::size_t side) {
  std::vector<double> all;
  for (const Times& t : times) all.push_back(t.began[side] < 0 ? -1 : seconds(t.took[side]));
  return all;
}

/// Layers with an observed input, in order of time.
std::vector<std::size_t> forward_order(const std::vector<Times>& times) {
  std::vector<std::size_t> order(times.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t b) { return times[b].began[kA] < 0; });
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return times[x].began[kA] < times[y].began[kA]; });
  return order;
}

std::int64_t first_gradient(const std::vector<Times>& times) {
  std::int64_t first = -1;
  for (const Times& t : times)
    if (t.began[kG] >= 0 && (first < 0 || t.began[kG] < first)) first = t.began[kG];
  return first;
}

}  // namespace

replan::CurvatureTimes curvature_times(std::span<const FactorSpan> factors, std::size_t blocks,
                                       std::vector<double> inverse_s) {
  const std::vector<Times> times = times_of(factors, blocks);
  replan::CurvatureTimes result;
  result.forward_s.assign(blocks, -1);
  const std::vector<std::size_t> order = forward_order(times);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Times& t = times[order[i]];
    const std::int64_t end =
        i + 1 < order.size() ? times[order[i + 1]].began[kA] : first_gradient(times);
    if (end < 0) continue;
    // A layer that is used again later has its other uses' time in `took`.
    result.forward_s[order[i]] = seconds(std::max<std::int64_t>(end - t.began[kA] - t.took[kA], 0));
  }
  result.factor_a_s = took(times, kA);
  result.factor_g_s = took(times, kG);
  result.inverse_s = std::move(inverse_s);
  return result;
}

double factors_between_s(std::span<const FactorSpan> factors, std::int64_t from_ns,
                         std::int64_t until_ns) {
  std::int64_t ns = 0;
  for (const FactorSpan& span : factors)
    if (span.start_ns >= from_ns && span.start_ns < until_ns) ns += span.end_ns - span.start_ns;
  return seconds(ns);
}

}  // namespace linerate::torch_adapter
