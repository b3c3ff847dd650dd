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
          .split = Split::exact,
          .descent = density};
}

Expectation sidco(const std::string& strategy, double density) {
  return {
      .strategy = strategy,
      .bytes =
          [=](const Shape& s) { return std::vector{4 + 8 * ((13 * k_of(density, s) + 9) / 10)}; },
      .split = Split::exact,
      .descent = density};
}

/// `warm_up`: densities of the phases before the steady one.
Expectation dgc(const std::string& strategy, double density,
                const std::vector<double>& warm_up = {}) {
  const auto bytes_at = [](const Shape& s, double part) {
    const double most = std::ceil(part * static_cast<double>(s.elements));
    return std::vector{4 + 8 * static_cast<std::int64_t>(most)};
  };
  const auto bytes = [=](const Shape& s) { return bytes_at(s, density); };
  return {.strategy = strategy,
          .bytes = bytes,
          .bytes_in =
              [=](const Shape& s, int phase) {
                const auto at = static_cast<std::size_t>(phase);
                return bytes_at(s, at < warm_up.size() ? warm_up[at] : density);
              },
          .pays = [=](const Shape& s) { return is_matrix(s) && bytes(s)[0] < 4 * s.elements; },
          .split = Split::none,
          .descent = 0.3 * density};  // momentum 0.9 makes ten steps of one
}

Expectation randomk(const std::string& strategy, double density) {
  return {.strategy = strategy,
          .bytes = [=](const Shape& s) { return std::vector{4 * k_of(density, s)}; },
          .split = Split::exact,
          // Scaled by n / k, below 200 here, where no residual is kept.
          .largest = 1e36f,
          .descent = density};
}

/// The bound is that of a dense step with its flag.
Expectation threshold(const std::string& strategy) {
  return {.strategy = strategy,
          .bytes = [](const Shape& s) { return std::vector{4 + 4 * s.elements}; },
          .pays = [](const Shape& s) { return s.elements > 3; },
          .split = Split::exact,
          .descent = 0.01};
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
          .descent = static_cast<double>(rank) / 32,  // of the 32 directions there are
          // Ranks' products are summed in f32: `rank` products of vectors no longer than M's.
          .sum_error = 0x1p-20};
}

Expectation powersgd_after_a_warm_up() {
  Expectation e = powersgd(2);
  e.strategy = "powersgd(rank=2,warmup=3)";
  e.bytes_in = [bytes = e.bytes](const Shape& s, int phase) {
    return phase == 0 ? std::vector<std::int64_t>() : bytes(s);
  };
  return e;
}

/// The phases behind `first_phase` dense ones send one factor and the other.
Expectation acpsgd(std::int64_t rank, int first_phase = 0) {
  return {
      .strategy = "acpsgd(rank=" + std::to_string(rank) + (first_phase > 0 ? ",warmup=3)" : ")"),
      .bytes =
          [=](const Shape& s) {
            return std::vector{4 * rank_in(rank, s) * std::max(s.rows, s.columns())};
          },
      .bytes_in =
          [=](const Shape& s, int phase) {
            if (phase < first_phase) return std::vector<std::int64_t>();
            return std::vector{4 * rank_in(rank, s) *
                               (phase == first_phase ? s.rows : s.columns())};
          },
      .pays = factors_pay(rank),
      .size_alternates = true,
      .descent = static_cast<double>(rank) / 32,
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
      dgc("dgc(density=0.01,warmup=7)", 0.01, {0.25, 0.0625, 0.015625}),
      entries("mstopk", 0.01),
      entries("mstopk(density=0.4,rounds=3)", 0.4),
      powersgd(4),
      powersgd(1),
      powersgd_after_a_warm_up(),
      acpsgd(4),
      acpsgd(1),
      acpsgd(2, 1),
  };
}

}  // namespace linerate::compress
