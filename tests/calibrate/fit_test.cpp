#include "linerate/calibrate/fit.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "cost/agreement.hpp"
#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/curve.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::calibrate {
namespace {

using cost::evaluate;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Samples = std::vector<doc::CostSample>;

constexpr double kMiB = 1048576;

doc::CollectiveCost table(int from, int to, double (*seconds)(double)) {
  doc::CollectiveCost cost;
  cost.ranks = 8;
  cost.source = "test.log";
  for (int k = from; k <= to; ++k) {
    const auto bytes = static_cast<double>(1ll << k);
    cost.samples.push_back({bytes, seconds(bytes)});
  }
  return cost;
}

doc::CollectiveCost fitted(const doc::CollectiveCost& measured) {
  return fit_collective(measured, {});
}

/// From so many bytes on they are priced as measured.
void expect_priced(const doc::CollectiveCost& cost, double from_bytes, double tolerance) {
  for (const doc::CostSample& s : cost.samples)
    if (s.bytes >= from_bytes) {
      EXPECT_NEAR(evaluate(cost, s.bytes).seconds / s.seconds, 1, tolerance) << s.bytes;
    }
}

double line(double s) { return 30e-6 + s / 10e9; }
double slower_line(double s) { return 60e-6 + s / 9e9; }
double with_switch(double s) { return (40e-6 + s / 8e9) * (s > 16 * kMiB ? 0.6 : 1); }

TEST(Fit, ALineIsFoundExactlyAtEverySize) {
  const doc::CollectiveCost cost = fitted(table(13, 30, line));
  EXPECT_LT(cost.error_max, 1e-9);
  for (const double bytes : {8192.0, 1e6, 1.5e6, 3e8, 1073741824.0, 4e9, 100.0})
    EXPECT_NEAR(evaluate(cost, bytes).seconds, line(bytes), 1e-6 * line(bytes)) << bytes;
  EXPECT_TRUE(evaluate(cost, 4e9).extrapolated);
  EXPECT_TRUE(cost.switches.empty());
}

/// The seconds at every size of a table and half way between.
std::vector<std::pair<double, cost::Estimate>> prices(const doc::CollectiveCost& cost) {
  std::vector<std::pair<double, cost::Estimate>> all;
  for (const doc::CostSample& s : cost.samples)
    for (const double bytes : {s.bytes, 1.4 * s.bytes})
      all.emplace_back(bytes, evaluate(cost, bytes));
  return all;
}

/// Tables to break: a line, a line with 2 % of noise, one that changes its algorithm.
std::vector<doc::CollectiveCost> tables_to_break() {
  doc::CollectiveCost noisy = table(12, 29, line);
  for (std::size_t i = 0; i < noisy.samples.size(); ++i)
    noisy.samples[i].seconds *= 0.98 + 0.04 * random_unit(3, i);
  return {table(12, 29, line), noisy, table(14, 30, with_switch)};
}

TEST(Fit, OneOutlierMovesNoNeighbour) {
  for (const doc::CollectiveCost& truth : tables_to_break()) {
    const doc::CollectiveCost whole = fitted(truth);
    for (std::size_t i = 1; i + 1 < truth.samples.size(); ++i) {
      const double at = truth.samples[i].bytes;
      // Within two sizes of its switch a table cannot tell which of its regimes a size belongs to.
      const bool beside_switch = !whole.switches.empty() && at >= 4 * kMiB && at <= 128 * kMiB;
      if (at < kMiB || beside_switch) continue;
      for (const double factor : {0.7, 1.3, 3.0}) {
        doc::CollectiveCost broken = truth;
        broken.samples[i].seconds *= factor;
        const doc::CollectiveCost cost = fitted(broken);
        EXPECT_TRUE(find_outliers(cost.samples)[i]) << at << " times " << factor;
        for (const auto& [bytes, price] : prices(whole))
          EXPECT_NEAR(evaluate(cost, bytes).seconds, price.seconds, 0.05 * price.seconds)
              << bytes << " with " << at << " times " << factor;
      }
    }
  }
}

TEST(Fit, SizesThatAreOffInARowAreARegimeOfTheirOwn) {
  for (const std::size_t together : {2, 3, 4}) {
    doc::CollectiveCost measured = table(14, 30, line);
    for (std::size_t i = 9; i < 9 + together; ++i) measured.samples[i].seconds *= 1.4;
    const doc::CollectiveCost cost = fitted(measured);
    EXPECT_THAT(find_outliers(cost.samples), testing::Each(false)) << together;
    expect_priced(cost, 0, 1e-6);
  }
}

TEST(Fit, FromOneMebibyteOnPricesAreWhatWasMeasuredAndNoOutlier) {
  for (const doc::CollectiveCost& truth : tables_to_break()) {
    const doc::CollectiveCost cost = fitted(truth);
    if (cost.switches.empty()) expect_priced(cost, kMiB, 0.02);
  }
}

TEST(Fit, NoSingleSampleMovesAPriceOutOfItsInterval) {
  for (const doc::CollectiveCost& truth : tables_to_break()) {
    const doc::CollectiveCost whole = fitted(truth);
    for (std::size_t i = 0; i < truth.samples.size(); ++i) {
      doc::CollectiveCost less = truth;
      less.samples.erase(less.samples.begin() + static_cast<std::ptrdiff_t>(i));
      const doc::CollectiveCost cost = fitted(less);
      for (const auto& [bytes, price] : prices(whole)) {
        const double seconds = evaluate(cost, bytes).seconds;
        EXPECT_GE(seconds, price.low * (1 - 1e-9)) << bytes << " without " << i;
        EXPECT_LE(seconds, price.high * (1 + 1e-9)) << bytes << " without " << i;
      }
    }
  }
}

TEST(Fit, OneLineHoldsAnIntervalForEachGap) {
  doc::CollectiveCost measured = table(13, 30, line);
  for (std::size_t i = 0; i < 4; ++i) measured.samples[i].seconds *= i % 2 == 0 ? 1.3 : 0.8;
  const doc::CollectiveCost cost = fitted(measured);
  const auto width = [&](double bytes) {
    const cost::Estimate e = evaluate(cost, bytes);
    return e.high / e.seconds - 1;
  };
  EXPECT_LT(width(500e6), 0.2 * width(10e3));
}

TEST(Fit, SegmentsTouchAndAscendFromZero) {
  const doc::CollectiveCost cost = fitted(table(20, 30, with_switch));
  EXPECT_EQ(cost.segments.front().from_bytes, 0);
  for (std::size_t i = 1; i < cost.segments.size(); ++i) {
    EXPECT_EQ(cost.segments[i].from_bytes, cost.segments[i - 1].to_bytes);
    EXPECT_LT(cost.segments[i].from_bytes, cost.segments[i].to_bytes);
  }
}

TEST(Fit, ASwitchIsReportedAndTheIntervalHoldsBothRegimesThere) {
  const doc::CollectiveCost cost = fitted(table(20, 30, with_switch));
  ASSERT_EQ(cost.switches.size(), 1u);
  EXPECT_EQ(cost.switches[0].after_bytes, 16 << 20);
  EXPECT_EQ(cost.switches[0].before_bytes, 32 << 20);
  for (const double mib : {17.0, 20.0, 24.0, 28.0, 31.0}) {
    const cost::Estimate e = evaluate(cost, mib * kMiB);
    const double slow = 40e-6 + mib * kMiB / 8e9;
    EXPECT_LE(e.low, 0.6 * slow * 1.0001) << mib;
    EXPECT_GE(e.high, slow * 0.9999) << mib;
  }
  // Far from the switch the samples lie on lines, and the interval is narrower.
  const cost::Estimate far = evaluate(cost, 700 * kMiB);
  EXPECT_LT(far.high / far.low, 1.4);
}

// Normal noise of deviation 1 (twelve uniform numbers).
double normal(std::uint64_t key, std::uint64_t i) {
  double sum = -6;
  for (std::uint64_t k = 0; k < 12; ++k) sum += random_unit(key, 12 * i + k);
  return sum;
}

// Log-normal noise of deviation 0.1, a stream a table.
double noise(std::uint64_t stream, std::uint64_t i) {
  return std::exp(0.1 * normal(random_key(5, stream), i));
}

doc::CollectiveCost noisy_table(std::uint64_t stream, int from, int to) {
  doc::CollectiveCost cost = table(from, to, line);
  for (std::size_t i = 0; i < cost.samples.size(); ++i) cost.samples[i].seconds *= noise(stream, i);
  return cost;
}

/// Of 2000 new measurements of forty tables: the share inside the interval, and its mean width.
struct Foreseen {
  double inside = 0, width = 0;
};
Foreseen foreseen(const std::function<doc::CollectiveCost(std::uint64_t stream)>& table_of,
                  double first, double doublings, double scatter) {
  Foreseen found;
  for (std::uint64_t stream = 0; stream < 40; ++stream) {
    const doc::CollectiveCost cost = fitted(table_of(stream));
    for (std::uint64_t i = 100; i < 150; ++i) {
      const double bytes = std::exp2(first + doublings * random_unit(stream, i));
      const double measured = line(bytes) * std::pow(noise(stream, i), scatter);
      const cost::Estimate e = evaluate(cost, bytes);
      found.inside += (e.low <= measured && measured <= e.high) / 2000.;
      found.width += (e.high - e.low) / 2000;
    }
  }
  return found;
}

TEST(Fit, ANewMeasurementOnANoisyClusterLiesInsideTheInterval) {
  // Eleven sizes with 10 % of noise, forty times; 90 % is stated, 85 % is what the issue demands.
  const auto table_of = [](std::uint64_t stream) { return noisy_table(stream, 20, 30); };
  EXPECT_GE(foreseen(table_of, 20, 10, 1).inside, 0.85);
}

/// Sizes of 1 to 256 KiB scatter by tens of percent, those of 1 to 128 MiB by 1.5 %.
doc::CollectiveCost noisy_when_small(std::uint64_t stream, bool says_spread) {
  doc::CollectiveCost cost = table(10, 27, line);
  for (std::size_t i = 0; i < cost.samples.size(); ++i) {
    doc::CostSample& s = cost.samples[i];
    const double scatter = i < 9 ? 3 : 0.15;  // in units of noise()'s 10 %
    s.seconds *= std::pow(noise(stream, i), scatter);
    if (!says_spread) continue;
    s.low_s = s.seconds / (1 + 0.1 * scatter), s.high_s = s.seconds * (1 + 0.1 * scatter);
  }
  return cost;
}

TEST(Fit, SmallMessagesThatScatterDoNotWidenTheIntervalOfLargeOnes) {
  const auto of_large = [](bool says_spread) {
    return foreseen([=](std::uint64_t stream) { return noisy_when_small(stream, says_spread); }, 21,
                    6, 0.15);
  };
  const Foreseen told = of_large(true);
  EXPECT_LT(told.width, 0.5 * of_large(false).width);
  EXPECT_GE(told.inside, 0.85);
  EXPECT_LE(told.inside, 0.99);
}

TEST(Fit, MoreBytesNeverTakeLessTimeWhereOnlyNoiseSaysSo) {
  const doc::CollectiveCost cost = fitted(noisy_table(3, 10, 30));
  for (double bytes = 1024; bytes < 1e9; bytes *= 1.1)
    EXPECT_GE(evaluate(cost, 1.1 * bytes).seconds, evaluate(cost, bytes).seconds) << bytes;
}

TEST(Fit, FourSizesPromiseNoMoreThanTwoErrorsCan) {
  // Exact by luck or by rule: two errors and a prior leave two degrees of freedom, Student's t of
  // 2.92, and nobody repeats to better than 2 %.
  const doc::CollectiveCost cost = fitted(table(20, 23, line));
  EXPECT_GE(evaluate(cost, 3 * kMiB).high / evaluate(cost, 3 * kMiB).seconds,
            1 + 2.92 * 0.02 - 1e-9);
}

TEST(Fit, RepeatedSizesBecomeTheirMedianWithTheirSpread) {
  doc::CollectiveCost measured = table(20, 24, line);
  measured.samples.push_back({kMiB, 2 * line(kMiB)});
  measured.samples.push_back({kMiB, 1.1 * line(kMiB)});
  const doc::CollectiveCost cost = fitted(measured);
  ASSERT_EQ(cost.samples.size(), 5u);
  EXPECT_DOUBLE_EQ(cost.samples[0].seconds, 1.1 * line(kMiB));  // of 1, 1.1 and 2
  EXPECT_DOUBLE_EQ(cost.samples[0].low_s, line(kMiB));
  EXPECT_DOUBLE_EQ(cost.samples[0].high_s, 2 * line(kMiB));
}

TEST(Fit, RowsWithoutATimeOrASizeAreNoSamples) {
  doc::CollectiveCost measured = table(20, 24, line);
  measured.samples.insert(measured.samples.end(), {{0, 5e-6}, {64 * kMiB, 0}});
  EXPECT_EQ(fitted(measured).samples.size(), 5u);
}

TEST(Fit, TwoSizesAreTooFew) {
  EXPECT_THAT([] { fitted(table(20, 21, line)); },
              ThrowsMessage<InputError>(HasSubstr("test.log: all-reduce f32: 2 usable sizes")));
}

TEST(Fit, TimesAboveTheLineRateAreRejected) {
  // 1 GiB in 107.4 ms on 8 ranks: busbw = 1.75 * 10 GB/s = 17.5 GB/s = 140 Gbit/s.
  EXPECT_NO_THROW(fit_collective(table(20, 30, line), {.line_rate_bytes_per_s = 18e9}));
  EXPECT_THAT([] { fit_collective(table(20, 30, line), {.line_rate_bytes_per_s = 1.25e9}); },
              ThrowsMessage<InputError>(HasSubstr("above the line rate of 10")));
}

// Two nodes of 4 have to send 2 * 1/2 of the data over their lines: 80 Gbit/s, whatever the ranks.
TEST(Fit, BetweenNodesOnlyWhatNodesHaveToSendCountsAgainstTheLine) {
  doc::CollectiveCost measured = table(20, 30, line);
  measured.ranks_per_node = 4;
  EXPECT_NO_THROW(fit_collective(measured, {.line_rate_bytes_per_s = 10e9}));
  EXPECT_THROW(fit_collective(measured, {.line_rate_bytes_per_s = 9e9}), InputError);
  measured.ranks_per_node = 0;  // as the caller says
  EXPECT_NO_THROW(fit_collective(measured, {.ranks_per_node = 4, .line_rate_bytes_per_s = 10e9}));
  measured.ranks_per_node = 8;  // one node: its own links
  EXPECT_THROW(fit_collective(measured, {.line_rate_bytes_per_s = 10e9}), InputError);
}

TEST(Fit, RankCountsMustBeKnownAndAgree) {
  doc::CollectiveCost unknown = table(20, 24, line);
  unknown.ranks = 0;
  EXPECT_THROW(fitted(unknown), UsageError);
  EXPECT_EQ(fit_collective(unknown, {.ranks = 4}).ranks, 4);
  EXPECT_THROW(fit_collective(table(20, 24, line), {.ranks = 4}), InputError);
  EXPECT_THROW(fit_collective(unknown, {.ranks = 1}), InputError);
}

TEST(FitCluster, LeavesOutWhatIsTooShortAndDescribesTheLink) {
  const doc::Cluster cluster = fit_cluster({table(20, 21, line), table(13, 30, line)}, {});
  ASSERT_EQ(cluster.collectives.size(), 1u);
  EXPECT_EQ(cluster.ranks, 8);
  // Ring on 8 ranks: alpha_step = 30 us / 14; B = 2 * 7/8 / (1e-10 s/B) = 17.5 GB/s.
  EXPECT_NEAR(cluster.network.latency_s, 30e-6 / 14, 1e-10);
  EXPECT_NEAR(cluster.network.bandwidth_bytes_per_s, 17.5e9, 1e4);
  EXPECT_THROW(fit_cluster({table(20, 21, line)}, {}), InputError);
  EXPECT_THROW(fit_cluster({}, {}), InputError);
}

TEST(FitCluster, TheLargestMessagesShowTheLink) {
  doc::CollectiveCost tiny = table(5, 7, [](double) { return 60e-6; });
  tiny.collective = Collective::all_gather;
  doc::CollectiveCost half = table(13, 30, [](double s) { return 15e-6 + s / 20e9; });
  half.collective = Collective::reduce_scatter;
  const doc::CollectiveCost whole = table(13, 30, line);
  for (const std::vector<doc::CollectiveCost>& tables :
       {std::vector{tiny, whole}, std::vector{whole, tiny}, std::vector{half, tiny, whole}}) {
    const doc::Cluster cluster = fit_cluster(tables, {});
    EXPECT_NEAR(cluster.network.bandwidth_bytes_per_s, 17.5e9, 1e4);
    EXPECT_NEAR(cluster.network.latency_s, 30e-6 / 14, 1e-10);
  }
}

// ---- lines and regimes ----

TEST(RelativeLine, RecoversAlphaAndBetaOverSixDecades) {
  const Samples samples = table(10, 30, line).samples;
  const Line found = RelativeLines(samples).fit(0, samples.size());
  EXPECT_NEAR(found.alpha_s, 30e-6, 1e-12);
  EXPECT_NEAR(found.beta_s_per_byte, 1e-10, 1e-18);
}

TEST(RelativeLine, GivesEverySizeTheSameWeight) {
  // 1 B in 1 s, 1 B in 3 s at nearly the same size: min (a/1 - 1)^2 + (a/3 - 1)^2 -> a (1 + 1/9) =
  // 4/3 -> a = 1.2 s. Plain least squares says 2 s.
  const Samples samples = {{1000, 1}, {1000.001, 3}, {1000.002, 1}, {1000.003, 3}};
  const RelativeLines lines(samples);
  EXPECT_NEAR(lines.fit(0, 4).at(1000), 1.2, 0.05);
}

TEST(RelativeLine, KeepsBothCoefficientsNonNegative) {
  const Samples falling = {{1000, 3}, {2000, 2}, {4000, 1}};
  EXPECT_EQ(RelativeLines(falling).fit(0, 3).beta_s_per_byte, 0);
  const Samples steep = {
      {1000, 1}, {2000, 3}, {4000, 9}};  // more than proportional: alpha would be negative
  EXPECT_EQ(RelativeLines(steep).fit(0, 3).alpha_s, 0);
}

/// Normal noise of relative deviation 0.1.
Samples noisy_line() {
  Samples samples = table(3, 33, slower_line).samples;
  for (std::uint64_t i = 0; i < samples.size(); ++i) samples[i].seconds *= 1 + 0.1 * normal(11, i);
  return samples;
}

TEST(Noise, IsFoundUnderALine) {
  // Thirty samples tell a deviation to about 1 / sqrt(30) times 1.5 for a median, twice that here.
  EXPECT_NEAR(noise_of(noisy_line()), 0.1, 0.06);
}

TEST(Noise, NeitherAJumpNorASteadyBendIsNoise) {
  EXPECT_EQ(noise_of(table(20, 30, with_switch).samples), 0.02);
  const auto bend = [](double s) { return 1e-6 * std::pow(s / kMiB, 0.7); };
  EXPECT_EQ(noise_of(table(20, 30, bend).samples), 0.02);
}

TEST(Regimes, NoiseOfTwoOrTenPercentIsNoSwitch) {
  Samples samples = table(13, 33, slower_line).samples;
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].seconds *= 0.98 + 0.04 * random_unit(7, i);
  EXPECT_TRUE(Curve(samples).switches.empty());
  EXPECT_TRUE(Curve(noisy_line()).switches.empty());
}

// ---- tables that others measured: probes over shaped links (recorded/), and real ones of NCCL
// ----

/// The cells of each row, comments left out. Reading logs is trace's work; this is its barest form.
std::vector<std::vector<std::string>> read_rows(const std::filesystem::path& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);)
    if (!text.starts_with('#')) rows.push_back(split_outside_parentheses(text, ','));
  return rows;
}

/// collective,bytes,seconds,low_s,high_s
std::map<std::string, doc::CollectiveCost> read_tables(const std::string& name) {
  std::map<std::string, doc::CollectiveCost> tables;
  for (const auto& row : read_rows(std::filesystem::path(RECORDED_PROBES) / name)) {
    if (row[0] == "collective") continue;
    doc::CollectiveCost& table = tables[row[0]];
    table.collective = parse_collective(row[0]);
    table.ranks = 2;
    table.source = name;
    table.samples.push_back(
        {std::stod(row[1]), std::stod(row[2]), std::stod(row[3]), std::stod(row[4])});
  }
  return tables;
}

TEST(RecordedProbe, RunsOnAnEmptiedLinkAreForeseenWithinTenPercent) {
  const auto tables = read_tables("runs_2ranks_1Gbit.csv");
  ASSERT_EQ(tables.size(), 3u);
  for (const auto& [kind, table] : tables)
    EXPECT_LT(fit_collective(table, {}).error_mean, 0.10) << kind;
}

TEST(RecordedProbe, CostsOfAllCollectivesAgreeOnAnyNumberOfRanks) {
  for (const char* name : {"runs_2ranks_1Gbit.csv", "single_calls_2ranks_200Mbit.csv"}) {
    doc::Cluster cluster;
    for (const auto& [kind, table] : read_tables(name))
      cluster.collectives.push_back(fit_collective(table, {}));
    cost::Agreement agreement;
    agreement.check(cost::CostModel(cluster), name, cost::sizes_around(cluster),
                    cost::kRanksAround);
    EXPECT_THAT(agreement.broken, testing::IsEmpty());
    EXPECT_GT(agreement.cases, 1000);
  }
}

TEST(RecordedProbe, WhereATokenBucketEndsTheNextSizeIsAskedFor) {
  // Single calls: 65.5 kB pass within the bucket of 73.7 kB, 262 kB do not.
  const auto tables = read_tables("single_calls_2ranks_200Mbit.csv");
  ASSERT_EQ(tables.size(), 2u);
  for (const auto& [kind, table] : tables) {
    EXPECT_GT(fit_collective(table, {}).error_mean, 1) << kind;
    std::vector<ProbedSize> sizes;
    for (const doc::CostSample& s : table.samples)
      sizes.push_back({static_cast<std::int64_t>(s.bytes), 0, {s.seconds, s.seconds, s.seconds}});
    const auto next = next_size(table.collective, 2, sizes);
    ASSERT_TRUE(next) << kind;
    EXPECT_GT(*next, 16384) << kind;
    EXPECT_LT(*next, 1 << 20) << kind;
  }
}

// ---- eleven samples of a real table predict the other thousand sizes ----

using Samples = std::vector<doc::CostSample>;

/// size(B),count,type,time(ns),...: out-of-place times.
Samples read_table(const std::filesystem::path& path) {
  Samples samples;
  for (const auto& row : read_rows(path))
    if (!row[0].empty() && std::isdigit(static_cast<unsigned char>(row[0][0])))
      samples.push_back({std::stod(row[0]), std::stod(row[3]) * 1e-9});
  return samples;
}

struct Outcome {
  double mean, p99, worst, inside;
};

Outcome predict_the_rest(const Samples& rows, const std::vector<std::size_t>& pick, int ranks) {
  doc::CollectiveCost measured;
  measured.ranks = ranks;
  for (const std::size_t i : pick) measured.samples.push_back(rows[i]);
  const doc::CollectiveCost cost = fit_collective(measured, {});
  std::vector<double> errors;
  double inside = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::find(pick.begin(), pick.end(), i) != pick.end()) continue;
    const cost::Estimate e = cost::evaluate(cost, rows[i].bytes);
    errors.push_back(std::abs(e.seconds / rows[i].seconds - 1));
    inside += e.low <= rows[i].seconds && rows[i].seconds <= e.high;
  }
  return {mean(errors), quantile(errors, 0.99), quantile(errors, 1),
          inside / static_cast<double>(errors.size())};
}

class SampleTable : public testing::TestWithParam<std::pair<const char*, int>> {
 protected:
  void SetUp() override {
    const std::filesystem::path path =
        std::filesystem::path("../shared/data/collectives") / GetParam().first;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
    rows_ = read_table(path);
    ASSERT_EQ(rows_.size(), 1024u);
    for (int k = 0; k <= 10; ++k)
      pick_.push_back((std::size_t{1} << k) - 1);  // 1, 2, 4 ... 1024 MiB
  }
  Samples rows_;
  std::vector<std::size_t> pick_;
};

TEST_P(SampleTable, ElevenSamplesPredictTheOthers) {
  const Outcome o = predict_the_rest(rows_, pick_, GetParam().second);
  for (const auto& [name, value] : {std::pair{"mean", o.mean}, std::pair{"p99", o.p99},
                                    std::pair{"worst", o.worst}, std::pair{"inside", o.inside}})
    RecordProperty(name, std::to_string(value));
  EXPECT_LE(o.mean, 0.01);
  EXPECT_LE(o.p99, 0.10);
  EXPECT_LE(o.worst, 0.20);
  EXPECT_GE(o.inside, 0.85);
}

TEST_P(SampleTable, AThousandSamplesAreFittedToo) {
  // Dense tables are noise around a curve: 3 % is the scatter of the A100 table below 16 MiB.
  doc::CollectiveCost measured;
  measured.ranks = GetParam().second;
  measured.samples = rows_;
  EXPECT_LE(fit_collective(measured, {}).error_mean, 0.03);
}

INSTANTIATE_TEST_SUITE_P(VTrain, SampleTable,
                         testing::Values(std::pair{"a100_nccl_allreduce_4gpu.csv", 4},
                                         std::pair{"v100_nccl_allreduce_8gpu.csv", 8}),
                         [](const auto& table) { return std::string(table.param.first, 4); });

}  // namespace
}  // namespace linerate::calibrate
