// Every compressor's rows: its bytes, what is kept, how it converges, and a second implementation.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "expectation.hpp"
#include "inputs.hpp"
#include "linerate/compress/cast.hpp"
#include "linerate/core/random.hpp"
#include "oracles.hpp"

namespace linerate::compress {
namespace {

// ---- bytes ----

/// A bit an element in words of 32, and `each` bytes a block.
auto signs(std::int64_t each, std::int64_t block = 0) {
  return [=](const Shape& s) {
    const std::int64_t blocks = block ? ceil_div(s.elements, block) : 1;
    return std::vector{4 * ceil_div(s.elements, 32) + each * blocks};
  };
}

/// Codes of `bits`, and `each` bytes a bucket; bucket 0: one.
auto codes(std::int64_t bits, std::int64_t each, std::int64_t bucket) {
  return [=](const Shape& s) {
    const std::int64_t buckets = bucket ? ceil_div(s.elements, bucket) : 1;
    return std::vector{pad4(ceil_div(s.elements * bits, 8)) + each * buckets};
  };
}

std::vector<std::int64_t> halves(const Shape& s) { return {2 * s.elements}; }
std::vector<std::int64_t> nine_bits(const Shape& s) { return {pad4(ceil_div(9 * s.elements, 8))}; }
std::vector<std::int64_t> eight_bits(const Shape& s) { return {4 + pad4(s.elements)}; }

std::int64_t k_of(double density, const Shape& s) {
  const auto k = static_cast<std::int64_t>(density * static_cast<double>(s.elements));
  return std::max<std::int64_t>(1, k);
}
bool is_matrix(const Shape& s) { return s.rows >= 2 && s.columns() >= 2; }
std::int64_t rank_in(std::int64_t rank, const Shape& s) {
  return std::min({rank, s.rows, s.columns()});
}

// ---- second implementations of a payload ----

/// Levels are means in f64, rounded once: half a unit of f32, and its denormals' unit.
Sent two_levels(std::pair<double, double> (*levels_of)(const std::vector<float>&)) {
  return [=](const std::vector<float>& v, const Keys&, std::span<const std::byte>) {
    const auto [positive, negative] = levels_of(v);
    std::vector<Neighbours> all;
    for (const float x : v) {
      const double level = x < 0 ? negative : positive;
      all.push_back({level, level, false, false, std::abs(level) * 0x1.01p-24 + 0x1p-150});
    }
    return all;
  };
}
/// Of the magnitudes, or of their squares.
template <int power>
std::pair<double, double> root_of_mean(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += std::pow(oracle::magnitude(x), power);
  const double level = std::pow(sum / static_cast<double>(v.size()), 1.0 / power);
  return {level, -level};
}
std::pair<double, double> mean_of_class(const std::vector<float>& v) {
  double sums[2] = {}, counts[2] = {};
  for (const float x : v) sums[x < 0] += x, counts[x < 0] += 1;
  return {counts[0] ? sums[0] / counts[0] : 0, counts[1] ? sums[1] / counts[1] : 0};
}

std::vector<float> bucket_of(const std::vector<float>& v, std::size_t i, std::size_t size) {
  const std::size_t first = i / size * size;
  return {v.begin() + static_cast<std::ptrdiff_t>(first),
          v.begin() + static_cast<std::ptrdiff_t>(std::min(v.size(), first + size))};
}

/// t units above `base`, rounded down or up; the codec knows t to 2^-20 of top or better.
Neighbours on_grid(double base, double unit, double t, int top, double threshold) {
  const double level = std::min(std::floor(t), static_cast<double>(top));
  const double next = std::min(level + 1, static_cast<double>(top));
  const double fraction = t - std::floor(t), slack = 0x1p-20 * top;
  // Just above a whole number or just below it, the codec may see the other.
  const bool both =
      std::abs(fraction - threshold) < slack || fraction < slack || fraction > 1 - slack;
  if (fraction > 1 - slack) return {base + next * unit, base + level * unit, false, true};
  return {base + level * unit, base + next * unit, threshold < fraction, both};
}

double uniform_of(std::uint64_t key, std::size_t i) {
  return static_cast<double>(rounding_bits(key, i) >> 8) * 0x1p-24;
}

/// Values of a grid, element by element. The unit on the wire is rounded up to f32, 2^-23 of it, so
/// the last point moves by as much of the range, at most twice the largest value; what is decoded
/// is rounded by 2^-24: 2^-21 of the largest covers both. `norms`: of the largest value, where the
/// unit is a part of them. Sums beyond f32 are cut, which has no twin. Units that are denormals
/// have few bits.
using OnGrid = std::function<Neighbours(const std::vector<float>& v, std::size_t i, std::uint64_t)>;
Sent on_grids(OnGrid rule, double norms = 1) {
  return [=](const std::vector<float>& v, const Keys& keys, std::span<const std::byte>) {
    const double largest = largest_magnitude(v) * norms;
    if (largest > 1e38) return std::vector<Neighbours>(v.size(), {0, 0, false, true, INFINITY});
    if (largest < 1e-36)
      return std::vector<Neighbours>(v.size(), {0, 0, false, true, largest * 1.5 + 0x1p-140});
    std::vector<Neighbours> all;
    for (std::size_t i = 0; i < v.size(); ++i) {
      all.push_back(rule(v, i, keys.own));
      all.back().tolerance = 0x1p-21 * largest;
    }
    return all;
  };
}

/// floor(s |v| / N + u), with the sign, and N the norm of d elements.
Sent qsgd(int bits, std::size_t d) {
  const int s = (1 << (bits - 1)) - 1;
  return on_grids(
      [=](const std::vector<float>& v, std::size_t i, std::uint64_t key) -> Neighbours {
        double squares = 0;
        for (const float x : bucket_of(v, i, d)) squares += static_cast<double>(x) * x;
        const double norm = std::sqrt(squares);
        if (norm == 0) return {0, 0, false, true};
        const double sign = v[i] < 0 ? -1 : 1;
        return on_grid(0, sign * norm / s, std::abs(static_cast<double>(v[i])) / norm * s, s,
                       uniform_of(key, i));
      },
      std::sqrt(static_cast<double>(d)));
}

Sent maxmin(int bits, bool stochastic) {
  return on_grids([=](const std::vector<float>& v, std::size_t i, std::uint64_t key) -> Neighbours {
    const std::vector<float> bucket = bucket_of(v, i, 512);
    const auto [least, largest] = std::minmax_element(bucket.begin(), bucket.end());
    const int top = (1 << bits) - 1;
    const double lo = *least, unit = (static_cast<double>(*largest) - lo) / top;
    if (unit == 0) return {lo, lo, false, true};
    return on_grid(lo, unit, (v[i] - lo) / unit, top, stochastic ? uniform_of(key, i) : 0.5);
  });
}

/// Equal elements have no deviation but that of rounding, so they have no twin.
Sent ternary_codes(double clip) {
  return on_grids([=](const std::vector<float>& v, std::size_t i, std::uint64_t key) -> Neighbours {
    const bool equal = std::all_of(v.begin(), v.end(), [&](float x) { return x == v[0]; });
    double mean = 0, variance = 0, s = largest_magnitude(v);
    for (const float x : v) mean += x / static_cast<double>(v.size());
    for (const float x : v) variance += (x - mean) * (x - mean) / static_cast<double>(v.size());
    if (clip > 0) s = std::min(s, clip * std::sqrt(variance));
    if (s == 0 || (equal && clip > 0)) return {0, 0, false, true};
    const double magnitude = std::min(s, std::abs(static_cast<double>(v[i])));
    const double sign = v[i] < 0 ? -1 : 1;
    return on_grid(0, sign * s, magnitude / s, 1, uniform_of(key, i));
  });
}

/// 0 and the powers of two from 2^least to 2^127; exact, as 23 random bits and 23 of a mantissa
/// are.
Neighbours power_of_two(double x, int least, std::uint64_t key, std::size_t i) {
  const double magnitude = std::abs(x), sign = x < 0 ? -1 : 1;
  const double random = static_cast<double>(rounding_bits(key, i) >> 9);  // of 2^23
  double lower = 0, upper = std::ldexp(1.0, least);
  if (magnitude >= upper) {
    lower = std::ldexp(1.0, std::ilogb(magnitude));
    upper = std::min(2 * lower, 0x1p127);
  }
  const double fraction = upper > lower ? (magnitude - lower) / (upper - lower) : 0;
  return {sign * lower, sign * upper, std::floor(fraction * 0x1p23) + random >= 0x1p23};
}
Sent natural(bool is_short) {
  return [=](const std::vector<float>& v, const Keys& keys, std::span<const std::byte>) {
    const double largest = largest_magnitude(v);
    const int top = largest < 0x1p-126 ? -126 : std::min(127, std::ilogb(largest) + 1);
    const int least = is_short ? std::max(-126, top - 126) : -126;
    std::vector<Neighbours> all;
    for (std::size_t i = 0; i < v.size(); ++i)
      all.push_back(power_of_two(v[i], least, keys.own, i));
    return all;
  };
}

/// Entries of v as they are. `count`: those that the payload says, kAllValues for all.
using Chooses = std::function<oracle::Indices(const std::vector<float>& v, const Keys& keys,
                                              std::size_t count)>;
Sent entries_by(Chooses choose) {
  return [=](const std::vector<float>& v, const Keys& keys, std::span<const std::byte> payload) {
    const auto count = std::min<std::size_t>(read_at<std::uint32_t>(payload, 0), v.size());
    std::vector<Neighbours> all(v.size(), {0, 0});
    for (const std::uint32_t i : choose(v, keys, count)) all[i] = {v[i], v[i]};
    return all;
  };
}
/// Thresholds decide how many are sent; they are the largest.
Sent largest_by_count() {
  return entries_by([](const std::vector<float>& v, const Keys&, std::size_t count) {
    return oracle::largest(v, count);
  });
}

// ---- second implementations of whole steps ----

/// The nearest number of `bits` of mantissa, ties to even; no exponent of these inputs is at an
/// end.
double rounded(double x, int bits) {
  if (x == 0) return 0;
  const double unit = std::ldexp(1.0, std::ilogb(x) - bits);
  return std::nearbyint(x / unit) * unit;
}

/// Sums as an all-reduce of that type makes them, in the order of ranks.
Twin half(int bits) {
  return [=](const Given& given) {
    const auto ranks = static_cast<double>(given.ranks());
    Outcome e{Numbers(given.elements()), {}};
    for (std::size_t r = 0; r < given.ranks(); ++r) {
      const std::vector<float> v = given.corrected(r);
      Numbers& kept = e.kept.emplace_back(given.elements());
      for (std::size_t i = 0; i < given.elements(); ++i) {
        const double sent = rounded(static_cast<double>(v[i]) / ranks, bits);
        e.mean[i] = rounded(e.mean[i] + sent, bits);
        kept[i] = v[i] - ranks * sent;
      }
    }
    return e;
  };
}

Twin vote() {
  return [](const Given& given) {
    Outcome e{Numbers(given.elements()), {}};
    for (std::size_t i = 0; i < given.elements(); ++i) {
      int sum = 0;
      for (const auto& g : given.gradients) sum += g[i] < 0 ? -1 : 1;
      e.mean[i] = sum < 0 ? -1 : 1;
    }
    return e;
  };
}

/// m = beta m + (1 - beta) g on each rank; what is sent of it and of the residual replaces m.
Twin onebit_adam(double beta) {
  return [beta, momentum = Numbers()](const Given& given) mutable {
    const std::size_t n = given.elements();
    momentum.resize(n);
    Outcome e{Numbers(n), {}};
    for (std::size_t r = 0; r < given.ranks(); ++r) {
      Numbers x(n);
      double squares = 0;
      for (std::size_t i = 0; i < n; ++i) {
        x[i] = beta * momentum[i] + (1 - beta) * given.gradients[r][i] + given.residuals[r][i];
        squares += x[i] * x[i];
      }
      const double level = std::sqrt(squares / static_cast<double>(n));
      for (double& one : x) {
        const double sent = one < 0 ? -level : level;
        e.mean[static_cast<std::size_t>(&one - x.data())] +=
            sent / static_cast<double>(given.ranks());
        one -= sent;
      }
      e.kept.push_back(std::move(x));
    }
    momentum = e.mean;
    return e;
  };
}

Twin random_places(double density, bool in_a_run) {
  return [=](const Given& given) {
    const std::uint64_t n = given.elements(), key = given.keys[0].shared;
    const DistinctIndices scattered(key, n);
    const std::uint64_t start = random_below(key, 0, n);
    return of_ranks(given, [&](std::size_t r) {
      const std::vector<float> v = given.corrected(r);
      Numbers sent(n);
      for (std::uint64_t j = 0; j < static_cast<std::uint64_t>(k_of(density, given.shape)); ++j) {
        const std::uint64_t at = in_a_run ? (start + j) % n : scattered.at(j);
        sent[at] = v[at];
      }
      return sent;
    });
  };
}

/// Its two accumulators stand in for a residual: in f64, through all steps. A rank's gradient is
/// clipped to a norm of clip / sqrt(ranks).
Twin dgc_accumulators(double momentum, bool nesterov, double clip) {
  return [=, u = std::vector<Numbers>(), r = std::vector<Numbers>()](const Given& given) mutable {
    const std::size_t n = given.elements();
    u.resize(given.ranks(), Numbers(n));
    r.resize(given.ranks(), Numbers(n));
    Outcome e{Numbers(n), {}};
    for (std::size_t rank = 0; rank < given.ranks(); ++rank) {
      double squares = 0;
      for (const float g : given.gradients[rank]) squares += static_cast<double>(g) * g;
      const double most = clip / std::sqrt(static_cast<double>(given.ranks()));
      const double scale = std::min(1.0, most / std::sqrt(squares));
      for (std::size_t i = 0; i < n; ++i) {
        const double g = scale * given.gradients[rank][i];
        u[rank][i] = nesterov ? momentum * (u[rank][i] + g) : momentum * u[rank][i] + g;
        r[rank][i] += nesterov ? u[rank][i] + g : u[rank][i];
      }
      const std::vector<float> v(r[rank].begin(), r[rank].end());
      const auto count = read_at<std::uint32_t>(given.payloads[rank], 0);
      for (const std::uint32_t i : oracle::largest(v, count)) {
        e.mean[i] += r[rank][i] / static_cast<double>(given.ranks());
        u[rank][i] = r[rank][i] = 0;
      }
    }
    return e;
  };
}

using oracle::Columns;
using oracle::Matrix;

Matrix matrix_of(const Given& given, std::size_t rank) {
  return {static_cast<std::size_t>(given.shape.rows),
          static_cast<std::size_t>(given.shape.columns()), given.corrected(rank)};
}

/// A factor as the codec had it before the step: like residuals, since a step multiplies what
/// factors differ by, up to twice or three times. None yet: from the shared stream.
Columns factor_before(const Given& given, std::string_view name, std::size_t rank, std::size_t n) {
  Columns factor(rank, Numbers(n));
  double squares = 0;
  for (const SavedField& field : given.before) {
    if (field.name != name) continue;
    std::vector<float> values(rank * n);
    std::memcpy(values.data(), field.bytes.data(), field.bytes.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      factor[i / n][i % n] = values[i];
      squares += static_cast<double>(values[i]) * values[i];
    }
  }
  return squares > 0 ? factor : oracle::random_factor(given.keys[0].shared, rank, n);
}

Twin project_on_the_mean(std::size_t rank) {
  return [=](const Given& given) {
    const Columns q =
        factor_before(given, "q", rank, static_cast<std::size_t>(given.shape.columns()));
    Columns mean(rank, Numbers(static_cast<std::size_t>(given.shape.rows)));
    for (std::size_t r = 0; r < given.ranks(); ++r) {
      const Columns own = oracle::times(matrix_of(given, r), q);
      for (std::size_t j = 0; j < rank; ++j)
        for (std::size_t i = 0; i < own[j].size(); ++i)
          mean[j][i] += own[j][i] / static_cast<double>(given.ranks());
    }
    const Columns basis = oracle::householder_basis(mean);
    return of_ranks(given, [&](std::size_t r) {
      return oracle::product(basis, oracle::transposed_times(matrix_of(given, r), basis)).at;
    });
  };
}

Twin project_in_turn(std::size_t rank) {
  return [=](const Given& given) {
    const bool sends_left = given.step % 2 == 0;
    const std::int64_t n = sends_left ? given.shape.columns() : given.shape.rows;
    const Columns fixed = oracle::householder_basis(
        factor_before(given, sends_left ? "q" : "p", rank, static_cast<std::size_t>(n)));
    return of_ranks(given, [&](std::size_t r) {
      const Matrix m = matrix_of(given, r);
      return sends_left ? oracle::product(oracle::times(m, fixed), fixed).at
                        : oracle::product(fixed, oracle::transposed_times(m, fixed)).at;
    });
  };
}

// ---- rows of a kind ----

/// A payload of a number of bytes, with a second implementation. `variance`: if unbiased.
Expectation sends(const std::string& strategy,
                  std::function<std::vector<std::int64_t>(const Shape&)> bytes, Sent sent,
                  double variance = 0) {
  return {.strategy = strategy,
          .bytes = std::move(bytes),
          .variance = variance,
          .sent = std::move(sent)};
}

/// k values with k indices, of the k elements that `choose` finds.
Expectation entries(
    const std::string& strategy, double density,
    std::function<oracle::Indices(const std::vector<float>& v, std::size_t k, const Keys& keys)>
        choose) {
  return {.strategy = strategy,
          .bytes = [=](const Shape& s) { return std::vector{8 * k_of(density, s)}; },
          .split = Split::exact,
          .descent = density,
          .sent = entries_by([=](const std::vector<float>& v, const Keys& keys, std::size_t) {
            const Shape shape{static_cast<std::int64_t>(v.size()), 1};
            return choose(v, static_cast<std::size_t>(k_of(density, shape)), keys);
          })};
}

Expectation topk(const std::string& strategy, double density) {
  return entries(strategy, density, [](const std::vector<float>& v, std::size_t k, const Keys&) {
    return oracle::largest(v, k);
  });
}

Expectation mstopk(const std::string& strategy, double density, int rounds) {
  return entries(strategy, density,
                 [=](const std::vector<float>& v, std::size_t k, const Keys& keys) {
                   return oracle::mstopk(v, k, rounds, random_unit(keys.own, 0));
                 });
}

Expectation sidco(const std::string& strategy, double density) {
  return {
      .strategy = strategy,
      .bytes =
          [=](const Shape& s) { return std::vector{4 + 8 * ((13 * k_of(density, s) + 9) / 10)}; },
      .split = Split::exact,
      .descent = density,
      .sent = largest_by_count()};
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

/// Scaled by n / k without a residual. So an element is sent as v n / k with probability k / n, and
/// its variance is v^2 (n / k - 1).
Expectation randomk(const std::string& strategy, double density, bool in_a_run) {
  return {.strategy = strategy,
          .bytes = [=](const Shape& s) { return std::vector{4 * k_of(density, s)}; },
          .split = Split::exact,
          // Scaled by n / k, below 200 here, where no residual is kept.
          .largest = 1e36f,
          .descent = density,
          .variance = 1 / density,
          .twin = [=] { return random_places(density, in_a_run); }};
}

/// The bound is that of a dense step with its flag.
Expectation threshold(const std::string& strategy) {
  return {.strategy = strategy,
          .bytes = [](const Shape& s) { return std::vector{4 + 4 * s.elements}; },
          .pays = [](const Shape& s) { return s.elements > 3; },
          .split = Split::exact,
          .descent = 0.01,
          .sent = largest_by_count()};
}

/// Ranks' products are summed in f32: `rank` products of vectors no longer than M's. A twin's basis
/// is computed, too. On some processors LibTorch multiplies factors by fused instructions where it
/// subtracts their product, and by others where it decodes it: that is `split_tolerance`.
Expectation factors(const std::string& strategy, std::int64_t rank) {
  return {.strategy = strategy,
          .bytes = nullptr,
          .pays =
              [=](const Shape& s) {
                return is_matrix(s) && rank_in(rank, s) * (s.rows + s.columns()) * 2 < s.elements;
              },
          .split_tolerance = 0x1p-23,
          .descent = static_cast<double>(rank) / 32,  // of the 32 directions there are
          .sum_error = 0x1p-20,
          .twin_bound = 1e-5};
}

/// After `warm_up` dense steps.
Expectation powersgd(std::int64_t rank, int warm_up = 0) {
  Expectation e = factors("powersgd(rank=" + std::to_string(rank) +
                              (warm_up > 0 ? ",warmup=" + std::to_string(warm_up) : "") + ")",
                          rank);
  e.bytes = [=](const Shape& s) {
    const std::int64_t r = rank_in(rank, s);
    return std::vector{4 * r * s.rows, 4 * r * s.columns()};
  };
  if (warm_up > 0)
    e.bytes_in = [bytes = e.bytes](const Shape& s, int phase) {
      return phase == 0 ? std::vector<std::int64_t>() : bytes(s);
    };
  e.refuses = {"rank=0", "rank=4.5", "warmup=-1"};
  e.twin = [=] { return project_on_the_mean(static_cast<std::size_t>(rank)); };
  return e;
}

/// The phases behind `first_phase` dense ones send one factor and the other.
Expectation acpsgd(std::int64_t rank, int first_phase = 0) {
  Expectation e =
      factors("acpsgd(rank=" + std::to_string(rank) + (first_phase > 0 ? ",warmup=3)" : ")"), rank);
  e.bytes = [=](const Shape& s) {
    return std::vector{4 * rank_in(rank, s) * std::max(s.rows, s.columns())};
  };
  e.bytes_in = [=](const Shape& s, int phase) {
    if (phase < first_phase) return std::vector<std::int64_t>();
    return std::vector{4 * rank_in(rank, s) * (phase == first_phase ? s.rows : s.columns())};
  };
  e.size_alternates = true;
  e.refuses = {"rank=-2"};
  e.twin = [=] { return project_in_turn(static_cast<std::size_t>(rank)); };
  return e;
}

Expectation golden(Expectation e, std::int64_t bytes, std::vector<std::string> refuses = {}) {
  e.golden = bytes;
  e.refuses = std::move(refuses);
  return e;
}

Expectation with_twin(Expectation e, std::function<Twin()> twin) {
  e.twin = std::move(twin);
  return e;
}

}  // namespace

Outcome of_ranks(const Given& given, const std::function<Numbers(std::size_t rank)>& decoded) {
  Outcome e{Numbers(given.elements()), {}};
  for (std::size_t r = 0; r < given.ranks(); ++r) {
    const Numbers own = decoded(r);
    const std::vector<float> v = given.corrected(r);
    Numbers& kept = e.kept.emplace_back(given.elements());
    for (std::size_t i = 0; i < given.elements(); ++i) {
      e.mean[i] += own[i] / static_cast<double>(given.ranks());
      kept[i] = v[i] - own[i];
    }
  }
  return e;
}

std::vector<Expectation> all_expectations() {
  return {
      // v / ranks is rounded to f32 first: next to a tie that is the other number of 16 bits.
      {.strategy = "fp16",
       .bytes = halves,
       .largest = 65504,
       .sum_error = 0x1p-11,
       .golden = 2000006,
       .refuses = {"bits=8"},
       .twin = [] { return half(10); },
       .twin_bound = 1e-4},
      {.strategy = "bf16",
       .bytes = halves,
       .sum_error = 0x1p-8,
       .golden = 2000006,
       .twin = [] { return half(7); },
       .twin_bound = 1e-4},
      {.strategy = "signsgd",
       .bytes = signs(0),
       .keeps_zero = false,
       .golden = 125004,
       .refuses = {"momentum=1"},
       .twin = vote},
      {.strategy = "signsgd(momentum=0.9)", .bytes = signs(0), .keeps_zero = false},
      golden(sends("efsignsgd", signs(4), two_levels(root_of_mean<1>)), 125008),
      golden(sends("onebit", signs(8), two_levels(mean_of_class)), 125012,
             {"block=33", "block=-32"}),
      sends("onebit(block=96)", signs(8, 96), nullptr),
      {.strategy = "onebit-adam",
       .bytes = signs(4),
       .split = Split::none,
       .descent = 0.3,
       .golden = 125008,
       .refuses = {"beta=1", "freeze_step=-1"},
       .twin = [] { return onebit_adam(0.9); }},
      sends("onebit-adam(beta=0)", signs(4), two_levels(root_of_mean<2>)),
      {.strategy = "onebit-adam(freeze_step=2)",
       .bytes = signs(4),
       .bytes_in = [](const Shape& s,
                      int phase) { return phase == 0 ? std::vector{4 * s.elements} : signs(4)(s); },
       .split = Split::none},
      golden(sends("qsgd", codes(8, 4, 128), qsgd(8, 128), 128.0 / (127 * 127)), 1031256,
             {"bits=3", "bits=1", "bucket=100", "bucket=16"}),
      golden(sends("qsgd(bits=4)", codes(4, 4, 128), qsgd(4, 128)), 531256),
      sends("qsgd(bits=2,bucket=32)", codes(2, 4, 32), qsgd(2, 32), std::sqrt(32.0)),
      golden(sends("maxmin", codes(8, 8, 512), maxmin(8, false)), 1015636,
             {"bits=16", "rounding=up"}),
      sends("maxmin(bits=8,rounding=stochastic)", codes(8, 8, 512), maxmin(8, true), 1),
      golden(sends("maxmin(bits=4)", codes(4, 8, 512), maxmin(4, false)), 515636),
      golden(sends("maxmin(bits=2,rounding=stochastic)", codes(2, 8, 512), maxmin(2, true), 4),
             265636),
      golden(sends("maxmin(bits=1)", codes(1, 8, 512), maxmin(1, false)), 140636),
      golden(sends("terngrad", codes(2, 4, 0), ternary_codes(2.5)), 250008, {"clip=-1"}),
      sends("terngrad(clip=0)", codes(2, 4, 0), ternary_codes(0), 100),
      golden(sends("natural", nine_bits, natural(false), 0.125), 1125004, {"bits=7"}),
      golden(sends("natural(bits=8)", eight_bits, natural(true), 0.125), 1000008),
      golden(topk("topk", 0.01), 80000, {"density=0", "density=1.5", "rank=4"}),
      topk("topk(density=0.3)", 0.3),
      golden(randomk("randomk", 0.01, false), 40000, {"density=-1"}),
      randomk("randomk(density=0.2,places=block)", 0.2, true),
      golden(threshold("threshold"), 0, {"tau=0", "tau=-1", "form=two-bit"}),
      threshold("threshold(tau=1.5)"),
      {.strategy = "threshold(tau=1,form=two-bit)",
       .bytes = [](const Shape& s) { return std::vector{pad4(ceil_div(s.elements, 4))}; },
       .golden = 250004},
      golden(sidco("sidco", 0.01), 4 + 8 * 13000, {"fit=normal", "stages=-1"}),
      sidco("sidco(fit=pareto,density=0.05)", 0.05),
      sidco("sidco(fit=gamma,density=0.1)", 0.1),
      with_twin(golden(dgc("dgc", 0.01), 0, {"momentum=1", "clip=0"}),
                [] { return dgc_accumulators(0.9, false, INFINITY); }),
      with_twin(dgc("dgc(density=0.1,nesterov=yes,clip=3)", 0.1),
                [] { return dgc_accumulators(0.9, true, 3); }),
      dgc("dgc(density=0.01,warmup=7)", 0.01, {0.25, 0.0625, 0.015625}),
      golden(mstopk("mstopk", 0.01, 20), 80000, {"rounds=0"}),
      mstopk("mstopk(density=0.4,rounds=3)", 0.4, 3),
      powersgd(4),
      powersgd(1),
      powersgd(2, 3),
      acpsgd(4),
      acpsgd(1),
      acpsgd(2, 1),
  };
}

}  // namespace linerate::compress
