#include <algorithm>
#include <cmath>

#include "expectation.hpp"

namespace linerate::compress {
namespace {

std::int64_t k_of(double density, const Shape& s) {
  const auto k = static_cast<std::int64_t>(density * static_cast<double>(s.elements));
  return std::max<std::int64_t>(1, k);
}
bool is_matrix(const Shape& s) { return s.rows >= 2 && s.columns() >= 2; }
std::int64_t rank_in(std::int64_t rank, const Shape& s) {
  return std::min({rank, s.rows, s.columns()});
}

/// k values with k indices.
Expectation entries(const std::string& strategy, double density) {
  return {.strategy = strategy,
          .bytes = [=](const Shape& s) { return std::vector{8 * k_of(density, s)}; },
          .split = Split::exact};
}

Expectation sidco(const std::string& strategy, double density) {
  return {
      .strategy = strategy,
      .bytes =
          [=](const Shape& s) { return std::vector{4 + 8 * ((13 * k_of(density, s) + 9) / 10)}; },
      .split = Split::exact};
}

Expectation dgc(const std::string& strategy, double density) {
  const auto bytes = [=](const Shape& s) {
    const double most = std::ceil(density * static_cast<double>(s.elements));
    return std::vector{4 + 8 * static_cast<std::int64_t>(most)};
  };
  return {.strategy = strategy,
          .bytes = bytes,
          .pays = [=](const Shape& s) { return is_matrix(s) && bytes(s)[0] < 4 * s.elements; },
          .split = Split::none};
}

Expectation randomk(const std::string& strategy, double density) {
  return {.strategy = strategy,
          .bytes = [=](const Shape& s) { return std::vector{4 * k_of(density, s)}; },
          .split = Split::exact,
          // Scaled by n / k, below 200 here, where no residual is kept.
          .largest = 1e36f};
}

/// The bound is that of a dense step with its flag.
Expectation threshold(const std::string& strategy) {
  return {.strategy = strategy,
          .bytes = [](const Shape& s) { return std::vector{4 + 4 * s.elements}; },
          .pays = [](const Shape& s) { return s.elements > 3; },
          .split = Split::exact};
}

std::function<bool(const Shape&)> factors_pay(std::int64_t rank) {
  return [=](const Shape& s) {
    return is_matrix(s) && rank_in(rank, s) * (s.rows + s.columns()) * 2 < s.elements;
  };
}

Expectation powersgd(std::int64_t rank) {
  return {.strategy = "powersgd(rank=" + std::to_string(rank) + ")",
          .bytes =
              [=](const Shape& s) {
                const std::int64_t r = rank_in(rank, s);
                return std::vector{4 * r * s.rows, 4 * r * s.columns()};
              },
          .pays = factors_pay(rank),
          // Ranks' products are summed in f32: `rank` products of vectors no longer than M's.
          .sum_error = 0x1p-20};
}

Expectation acpsgd(std::int64_t rank) {
  return {.strategy = "acpsgd(rank=" + std::to_string(rank) + ")",
          .bytes =
              [=](const Shape& s) {
                return std::vector{4 * rank_in(rank, s) * std::max(s.rows, s.columns())};
              },
          .pays = factors_pay(rank),
          .size_alternates = true,
          .sum_error = 0x1p-20};
}

}  // namespace

std::vector<Expectation> sparse_and_low_rank_expectations() {
  return {
      entries("topk", 0.01),
      entries("topk(density=0.3)", 0.3),
      randomk("randomk", 0.01),
      randomk("randomk(density=0.2,places=block)", 0.2),
      threshold("threshold"),
      threshold("threshold(tau=1.5)"),
      {.strategy = "threshold(tau=1,form=two-bit)",
       .bytes = [](const Shape& s) { return std::vector{pad4(ceil_div(s.elements, 4))}; }},
      sidco("sidco", 0.01),
      sidco("sidco(fit=pareto,density=0.05)", 0.05),
      sidco("sidco(fit=gamma,density=0.1)", 0.1),
      dgc("dgc", 0.01),
      dgc("dgc(density=0.1,nesterov=yes,clip=3)", 0.1),
      entries("mstopk", 0.01),
      entries("mstopk(density=0.4,rounds=3)", 0.4),
      powersgd(4),
      powersgd(1),
      acpsgd(4),
      acpsgd(1),
  };
}

}  // namespace linerate::compress
