// Every registered compressor over several steps and ranks next to a second implementation in f64,
// which shares with it the random numbers alone (and how many entries a threshold let through). The
// test prints the largest relative differences, and docs/compression.md has their summary.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "inputs.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "oracle_low_rank.hpp"
#include "oracle_quantizer.hpp"
#include "oracle_sparse.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace twins {
namespace {

using Numbers = std::vector<double>;

constexpr std::size_t kRows = 40, kColumns = 60, kElements = kRows * kColumns;
const Shape kShape{kElements, kRows};
constexpr std::uint64_t kSteps = 8;

/// A step as its twin sees it: what each rank gives, and the payloads that the codec made of it.
struct Given {
  const std::vector<std::vector<float>>& gradients;  // [rank][element]
  const std::vector<std::vector<float>>& residuals;  // of the step before
  const std::vector<Payload>& sent;                  // [rank], of the first round
  const SavedState& before;                          // what rank 0's codec kept
  std::uint64_t step;

  std::size_t ranks() const { return gradients.size(); }
  /// As the codec rounds it: what is selected, and which way a number is rounded, goes by that.
  std::vector<float> corrected(std::size_t rank) const {
    std::vector<float> v = gradients[rank];
    for (std::size_t i = 0; i < residuals[rank].size(); ++i) v[i] += residuals[rank][i];
    return v;
  }
  Keys keys(std::size_t rank) const { return keys_of(step, static_cast<int>(rank)); }
};

/// What should come of it. NaN: rounding decides between two numbers that are both right.
struct Expected {
  Numbers mean;
  std::vector<Numbers> kept;  // [rank]; empty: nothing that a residual would hold
};

/// A compressor's second implementation, with what it remembers.
using Twin = std::function<Expected(const Given&)>;

Expected of_ranks(const Given& given, const std::function<Numbers(std::size_t rank)>& decoded) {
  Expected e{Numbers(kElements), {}};
  for (std::size_t r = 0; r < given.ranks(); ++r) {
    const Numbers own = decoded(r);
    const std::vector<float> v = given.corrected(r);
    Numbers& kept = e.kept.emplace_back(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      e.mean[i] += own[i] / static_cast<double>(given.ranks());
      kept[i] = v[i] - own[i];
    }
  }
  return e;
}

/// Each rank's payload by a rule of its own elements.
Twin each(std::function<Numbers(const std::vector<float>& v, const Keys& keys)> rule) {
  return [rule](const Given& given) {
    return of_ranks(given, [&](std::size_t r) { return rule(given.corrected(r), given.keys(r)); });
  };
}

Twin signs(SignOracle (*levels_of)(const std::vector<float>&)) {
  return each([=](const std::vector<float>& v, const Keys&) {
    const SignOracle levels = levels_of(v);
    Numbers sent;
    for (const float x : v) sent.push_back(x < 0 ? levels.negative : levels.positive);
    return sent;
  });
}

Twin grid(std::function<Neighbours(const std::vector<float>&, std::size_t, std::uint64_t)> rule) {
  return each([=](const std::vector<float>& v, const Keys& keys) {
    Numbers sent;
    for (std::size_t i = 0; i < v.size(); ++i) {
      const Neighbours n = rule(v, i, keys.own);
      const bool is_open = n.both && n.lower != n.upper;
      sent.push_back(is_open ? std::numeric_limits<double>::quiet_NaN() : n.up ? n.upper : n.lower);
    }
    return sent;
  });
}

Twin entries(
    std::function<oracle::Indices(const std::vector<float>&, const Keys&, const Payload&)> rule) {
  return [=](const Given& given) {
    return of_ranks(given, [&](std::size_t r) {
      const std::vector<float> v = given.corrected(r);
      Numbers sent(kElements);
      for (const std::uint32_t i : rule(v, given.keys(r), given.sent[r])) sent[i] = v[i];
      return sent;
    });
  };
}

std::size_t count_in(const Payload& payload) {
  std::uint32_t count;
  std::memcpy(&count, payload.bytes().data(), sizeof count);
  return count;
}

/// Thresholds decide how many are sent; they are the largest.
Twin largest_by_count() {
  return entries([](const std::vector<float>& v, const Keys&, const Payload& sent) {
    return oracle::largest(v, count_in(sent));
  });
}

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
    Expected e{Numbers(kElements), {}};
    for (std::size_t r = 0; r < given.ranks(); ++r) {
      const std::vector<float> v = given.corrected(r);
      Numbers& kept = e.kept.emplace_back(kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        const double sent = rounded(static_cast<double>(v[i]) / ranks, bits);
        e.mean[i] = rounded(e.mean[i] + sent, bits);
        kept[i] = v[i] - ranks * sent;
      }
    }
    return e;
  };
}

Expected vote(const Given& given) {
  Expected e{Numbers(kElements), {}};
  for (std::size_t i = 0; i < kElements; ++i) {
    int sum = 0;
    for (const auto& g : given.gradients) sum += g[i] < 0 ? -1 : 1;
    e.mean[i] = sum < 0 ? -1 : 1;
  }
  return e;
}

Twin onebit_adam(double beta) {
  return [beta, momentum = Numbers(kElements)](const Given& given) mutable {
    Expected e{Numbers(kElements), {}};
    for (std::size_t r = 0; r < given.ranks(); ++r) {
      Numbers x(kElements);
      double squares = 0;
      for (std::size_t i = 0; i < kElements; ++i) {
        x[i] = beta * momentum[i] + (1 - beta) * given.gradients[r][i] + given.residuals[r][i];
        squares += x[i] * x[i];
      }
      const double level = std::sqrt(squares / kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        const double sent = x[i] < 0 ? -level : level;
        e.mean[i] += sent / static_cast<double>(given.ranks());
        x[i] -= sent;
      }
      e.kept.push_back(std::move(x));
    }
    momentum = e.mean;
    return e;
  };
}

Expected random_places(const Given& given) {
  const DistinctIndices places(given.keys(0).shared, kElements);
  return of_ranks(given, [&](std::size_t r) {
    const std::vector<float> v = given.corrected(r);
    Numbers sent(kElements);
    for (std::uint64_t j = 0; j < kElements / 100; ++j) sent[places.at(j)] = v[places.at(j)];
    return sent;
  });
}

/// Its two accumulators stand in for a residual: in f64, through all steps.
Twin dgc(double momentum) {
  std::vector<Numbers> u, r;
  return [=](const Given& given) mutable {
    u.resize(given.ranks(), Numbers(kElements));
    r.resize(given.ranks(), Numbers(kElements));
    Expected e{Numbers(kElements), {}};
    for (std::size_t rank = 0; rank < given.ranks(); ++rank) {
      for (std::size_t i = 0; i < kElements; ++i) {
        u[rank][i] = momentum * u[rank][i] + given.gradients[rank][i];
        r[rank][i] += u[rank][i];
      }
      const std::vector<float> v(r[rank].begin(), r[rank].end());
      for (const std::uint32_t i : oracle::largest(v, count_in(given.sent[rank]))) {
        e.mean[i] += r[rank][i] / static_cast<double>(given.ranks());
        u[rank][i] = r[rank][i] = 0;
      }
    }
    return e;
  };
}

/// Of what the ranks give: each rank's part by `own`, which the mean is the mean of.
Expected of_matrices(const Given& given,
                     const std::function<oracle::Matrix(const oracle::Matrix&)>& own) {
  return of_ranks(given, [&](std::size_t r) {
    return own(oracle::Matrix(kRows, kColumns, given.corrected(r))).at;
  });
}

oracle::Columns mean_of(const Given& given,
                        const std::function<oracle::Columns(const oracle::Matrix&)>& factor) {
  oracle::Columns mean;
  for (std::size_t r = 0; r < given.ranks(); ++r) {
    oracle::Columns own = factor(oracle::Matrix(kRows, kColumns, given.corrected(r)));
    mean.resize(own.size(), Numbers(own[0].size()));
    for (std::size_t j = 0; j < own.size(); ++j)
      for (std::size_t i = 0; i < own[j].size(); ++i)
        mean[j][i] += own[j][i] / static_cast<double>(given.ranks());
  }
  return mean;
}

constexpr std::size_t kRank = 4;

/// A factor as the codec had it before the step: like residuals, since a step multiplies what
/// factors differ by, up to twice or three times. None yet: from the shared stream.
oracle::Columns factor_before(const Given& given, std::string_view name, std::size_t n) {
  oracle::Columns factor(kRank, Numbers(n));
  double squares = 0;
  for (const SavedField& field : given.before) {
    if (field.name != name) continue;
    std::vector<float> values(kRank * n);
    std::memcpy(values.data(), field.bytes.data(), field.bytes.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      factor[i / n][i % n] = values[i];
      squares += static_cast<double>(values[i]) * values[i];
    }
  }
  return squares > 0 ? factor : oracle::random_factor(given.keys(0).shared, kRank, n);
}

Expected powersgd(const Given& given) {
  const oracle::Columns q = factor_before(given, "q", kColumns);
  const oracle::Columns basis = oracle::householder_basis(
      mean_of(given, [&](const oracle::Matrix& m) { return oracle::times(m, q); }));
  return of_matrices(given, [&](const oracle::Matrix& m) {
    return oracle::product(basis, oracle::transposed_times(m, basis));
  });
}

Expected acpsgd(const Given& given) {
  const bool sends_left = given.step % 2 == 0;
  const oracle::Columns fixed = oracle::householder_basis(
      sends_left ? factor_before(given, "q", kColumns) : factor_before(given, "p", kRows));
  return of_matrices(given, [&](const oracle::Matrix& m) {
    return sends_left ? oracle::product(oracle::times(m, fixed), fixed)
                      : oracle::product(fixed, oracle::transposed_times(m, fixed));
  });
}

struct Row {
  std::string strategy;
  std::function<Twin()> twin;
  /// Of the largest relative difference: a few dozen roundings of f32 unless it says why.
  double bound = 1e-6;
};

std::vector<Row> rows() {
  const auto made_of = [](Twin twin) { return [=] { return twin; }; };
  const auto in_range = [](auto rule) {
    return [=](const std::vector<float>& v, std::size_t i, std::uint64_t key) {
      return rule(v, i, key);
    };
  };
  return {
      // v / ranks is rounded to f32 first: next to a tie that is the other number of 16 bits.
      {"fp16", made_of(half(10)), 1e-4},
      {"bf16", made_of(half(7)), 1e-4},
      {"signsgd", made_of(vote)},
      {"efsignsgd", made_of(signs(mean_magnitude_oracle))},
      {"onebit", made_of(signs(mean_of_class_oracle))},
      {"onebit-adam", made_of(onebit_adam(0.9))},
      // The unit of a grid travels as f32, rounded up.
      {"qsgd", made_of(grid(in_range([](const auto& v, std::size_t i, std::uint64_t key) {
         return qsgd_oracle(v, i, 127, 128, key);
       })))},
      {"maxmin", made_of(grid(in_range([](const auto& v, std::size_t i, std::uint64_t key) {
         return maxmin_oracle(v, i, 8, false, key);
       })))},
      {"terngrad", made_of(grid(in_range([](const auto& v, std::size_t i, std::uint64_t key) {
         return terngrad_oracle(v, i, 2.5, key);
       })))},
      {"natural", made_of(grid(in_range([](const auto& v, std::size_t i, std::uint64_t key) {
         return natural_oracle(v[i], -126, key, i);
       })))},
      {"topk", made_of(entries([](const auto& v, const Keys&, const Payload&) {
         return oracle::largest(v, kElements / 100);
       }))},
      {"mstopk", made_of(entries([](const auto& v, const Keys& keys, const Payload&) {
         return oracle::mstopk(v, kElements / 100, 20, random_unit(keys.own, 0));
       }))},
      {"randomk", made_of(random_places)},
      {"threshold", made_of(largest_by_count())},
      {"sidco", made_of(largest_by_count())},
      {"dgc", made_of(dgc(0.9))},
      {"powersgd", made_of(powersgd), 1e-5},  // products of f32 with a basis that is computed, too
      {"acpsgd", made_of(acpsgd), 1e-5},
  };
}

/// |found - expected| / |expected|, over the elements that have one right answer; counts the
/// others.
double relative_difference(const std::vector<float>& found, const Numbers& expected, double scale,
                           std::size_t& open) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      ++open;
      continue;
    }
    off += (found[i] - expected[i]) * (found[i] - expected[i]);
    all += expected[i] * expected[i];
  }
  const double against = scale > 0 ? scale : std::sqrt(all);
  return off == 0 ? 0 : std::sqrt(off) / against;
}

double norm_of(const std::vector<float>& v) {
  double squares = 0;
  for (const float x : v) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

struct Worst {
  double mean = 0, kept = 0;
  std::size_t open = 0, elements = 0;
};

void compare(const Row& row, int ranks, Worst& worst) {
  const auto compressor = made(row.strategy);
  RankGroup group(*compressor, kShape, ranks, keeps_residual(*compressor));
  const Twin twin = row.twin();
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<std::vector<float>> gradients, residuals;
    for (int r = 0; r < ranks; ++r) {
      const auto stream = random_key(step, static_cast<std::uint64_t>(r));
      gradients.push_back(noise(kElements, stream, static_cast<float>(std::exp2(r))));
      residuals.push_back(group.residual(r));
    }
    const SavedState before = group.codec(0).save();
    const std::vector<float> mean = group.step(gradients, step);
    const Given given{gradients, residuals, group.sent()[0], before, step};
    const Expected expected = twin(given);
    worst.mean = std::max(worst.mean, relative_difference(mean, expected.mean, 0, worst.open));
    worst.elements += kElements;
    for (std::size_t r = 0; r < expected.kept.size(); ++r) {
      const std::vector<float>& kept = group.residual(static_cast<int>(r));
      if (kept.empty()) continue;
      std::size_t open = 0;
      worst.kept = std::max(worst.kept, relative_difference(kept, expected.kept[r],
                                                            norm_of(given.corrected(r)), open));
    }
  }
}

TEST(Oracles, AgreeWithEveryCompressor) {
  std::vector<std::string> covered;
  fmt::print(
      "[ oracle ] {} x {} elements, {} steps, 1, 2, 3 and 5 ranks; largest relative difference\n",
      kRows, kColumns, kSteps);
  fmt::print("[ oracle ] {:12} {:>8} {:>9} {:>16}\n", "compressor", "mean", "residual",
             "either is right");
  for (const Row& row : rows()) {
    covered.push_back(doc::parse_component(row.strategy).name);
    Worst worst;
    for (const int ranks : {1, 2, 3, 5}) compare(row, ranks, worst);
    const double open = static_cast<double>(worst.open) / static_cast<double>(worst.elements);
    fmt::print("[ oracle ] {:12} {:8.1e} {:9.1e} {:14.2f} %\n", row.strategy, worst.mean,
               worst.kept, 100 * open);
    RecordProperty("largest difference: " + row.strategy, fmt::format("{:.1e}", worst.mean));
    EXPECT_LE(worst.mean, row.bound) << row.strategy;
    EXPECT_LE(worst.kept, row.bound) << row.strategy;
    EXPECT_LE(open, 0.02) << row.strategy;
  }
  for (const std::string& name : compressors().names())
    EXPECT_THAT(covered, testing::Contains(name)) << "no second implementation";
}

}  // namespace
}  // namespace twins
}  // namespace linerate::compress
