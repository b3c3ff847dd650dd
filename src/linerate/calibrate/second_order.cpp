// Costs of K-FAC's work. Inversions are looked up by dimension. Factors and directions are priced
// by rates: a fixed time a call, and times for each flop, input and element. Samples of different
// shapes tell the rates apart. Errors are relative, so small layers count as much as large ones.
#include "linerate/calibrate/second_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"

namespace linerate::calibrate {
namespace {

/// Seconds of one call, of a flop, of an input, of an element.
using Rates = std::array<double, 4>;

Rates units_of(const doc::SecondOrderWork& work) {
  return {1, work.flops, work.inputs, work.elements};
}

/// Rates, all >= 0, with the least sum of ((rates units - seconds) / seconds)^2. Coordinate descent
/// finds them. Each step solves for one rate while the others stay, and stops at 0. The sum is
/// convex, so the steps lead to its minimum. `missing` is the share of each sample's time that the
/// rates leave.
Rates least_relative_error(const std::vector<doc::SecondOrderWork>& samples) {
  constexpr int kSweeps = 20000;
  Rates rates{};
  std::vector<Rates> shares;  // of a sample's seconds
  for (const doc::SecondOrderWork& s : samples) {
    shares.push_back(units_of(s));
    for (double& share : shares.back()) share /= s.seconds;
  }
  std::vector<double> missing(samples.size(), 1);
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (std::size_t k = 0; k < rates.size(); ++k) {
      double along = 0, square = 0;
      for (std::size_t i = 0; i < shares.size(); ++i)
        along += missing[i] * shares[i][k], square += shares[i][k] * shares[i][k];
      if (square == 0) continue;
      const double step = std::max(along / square, -rates[k]);
      rates[k] += step;
      for (std::size_t i = 0; i < shares.size(); ++i) missing[i] -= step * shares[i][k];
    }
  return rates;
}

double flops_per_s(double s_per_flop) { return s_per_flop > 0 ? 1 / s_per_flop : 0; }

std::vector<doc::InverseSample> medians(const std::vector<doc::InverseSample>& samples) {
  std::map<std::int64_t, std::vector<double>> of_dim;
  for (const doc::InverseSample& s : samples) of_dim[s.dim].push_back(s.seconds);
  std::vector<doc::InverseSample> all;
  for (const auto& [dim, seconds] : of_dim) all.push_back({dim, median(seconds)});
  return all;
}

struct TableLine {
  std::string what;
  std::int64_t dim = 0;
  double seconds = 0;
};

TableLine table_line(const std::string& place, const std::string& text) {
  const std::vector<std::string> cells = split_outside_parentheses(text, ',');
  try {
    if (cells.size() == 3) {
      const TableLine line{lowered(trim(cells[0])), parse_integer(cells[1]),
                           parse_number(cells[2])};
      const bool known = line.what == "inv" || line.what == "chol" || line.what == "mm";
      if (known && line.dim > 0 && std::isfinite(line.seconds) && line.seconds > 0) return line;
    }
  } catch (const UsageError&) {  // no number
  }
  throw InputError(
      place, fmt::format("expected inv,DIM,SECONDS (or mm, chol), both above 0, found \"{}\"; "
                         "linerate calibrate --second-order without a file measures them",
                         text));
}

}  // namespace

doc::SecondOrderCost fit_second_order(const doc::SecondOrderSamples& samples) {
  doc::SecondOrderCost cost;
  cost.inverses = medians(samples.inverses);
  cost.batches = samples.batches;
  const Rates factor = least_relative_error(samples.factors);
  cost.factor_fixed_s = factor[0], cost.factor_flops_per_s = flops_per_s(factor[1]);
  cost.factor_s_per_input = factor[2], cost.factor_s_per_element = factor[3];
  const Rates direction = least_relative_error(samples.directions);
  cost.precondition_fixed_s = direction[0];
  cost.precondition_flops_per_s = flops_per_s(direction[1]);
  return cost;
}

doc::SecondOrderSamples read_second_order_table(const std::filesystem::path& path,
                                                std::vector<std::string>* notes) {
  doc::SecondOrderSamples samples;
  const std::string text = read_file(path);
  std::size_t at = 0;
  for (int number = 1; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string content(trim(std::string_view(text).substr(at, end - at)));
    at = end + 1;
    if (content.empty() || content.starts_with('#')) continue;
    const TableLine line = table_line(fmt::format("{}:{}", path.string(), number), content);
    if (line.what == "inv") samples.inverses.push_back({line.dim, line.seconds});
    if (line.what != "mm") continue;
    const double flops = 2 * std::pow(static_cast<double>(line.dim), 3);
    for (auto* work : {&samples.factors, &samples.directions})
      work->push_back({.flops = flops, .seconds = line.seconds});
  }
  if (samples.inverses.empty())
    throw InputError(path.string(), "expected lines inv,DIM,SECONDS, found none");
  if (samples.factors.empty() && notes)
    notes->push_back(
        path.string() +
        ": no products (mm,DIM,SECONDS), so factors and directions count as taking no time");
  return samples;
}

}  // namespace linerate::calibrate
