// Every compressor sends, decodes and keeps the bytes of a table, which was written once:
// frozen.txt next to this file. Both back ends are held to it.
//
// The table is written by the native codecs of unit.compress:
//   LINERATE_WRITE_FROZEN=tests/compress/frozen.txt build/release/tests/test_unit_compress
//     --gtest_filter=FrozenTable.*
// A line that begins with "#" names a setting and whether a residual is kept. Each line below is of
// one shape: hashes of all payloads, of all means, of residuals and states; then elements of the
// mean and of rank 1's residual of the last step but one, to be read.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "expectation.hpp"
#include "inputs.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/file.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

constexpr std::uint64_t kFrozenSteps = 7;
constexpr std::size_t kReadable = 3;

/// One element and a few, words and blocks and what is around them, matrices, a convolution.
const std::vector<Shape> kFrozenShapes = {
    {1, 1},    {2, 1},    {31, 1},    {32, 1},    {33, 1},    {513, 3},
    {4095, 1}, {4096, 1}, {4097, 17}, {4096, 64}, {9000, 90}, {64 * 16 * 9, 64},
};

/// Uniform sums, by arithmetic alone: the same with every C library.
float frozen_normal(std::uint64_t key, std::uint64_t i) {
  double sum = -2;
  for (std::uint64_t j = 0; j < 4; ++j) sum += random_unit(key, 4 * i + j);
  return static_cast<float>(sum);
}

/// Noise; zeros of both signs among it; zeros; denormals; equal magnitudes; noise; what no 16 bits
/// hold. Infinities and NaNs are found before any codec.
std::vector<float> frozen_gradient(std::size_t n, std::uint64_t step, std::uint64_t rank) {
  const std::uint64_t key = random_key(step, rank + 1);
  std::vector<float> all(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float noise = frozen_normal(key, i);
    const auto denormal = static_cast<float>(i % 100) * std::numeric_limits<float>::denorm_min();
    const float values[kFrozenSteps] = {noise,
                                        i % 3 ? noise : (i % 2 ? 0.0f : -0.0f),
                                        i % 2 ? 0.0f : -0.0f,
                                        i % 2 ? denormal : -denormal,
                                        i % 5 ? 0.25f : -0.25f,
                                        noise,
                                        (i % 2 ? -0x1p40f : 0x1p40f) * std::abs(noise)};
    all[i] = values[step % kFrozenSteps];
  }
  return all;
}

/// FNV-1a of all that is added.
class FrozenHash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      hash_ = (hash_ ^ std::to_integer<std::uint32_t>(byte)) * 16777619u;
  }
  std::string text() const { return fmt::format("{:08x}", hash_); }

 private:
  std::uint32_t hash_ = 2166136261u;
};

/// A line of the table: the shape, hashes, the mean's elements, and behind a "|" the residual's.
std::vector<float> mean_of_row(const std::string& row) {
  std::istringstream in(row);
  std::string word;
  for (int i = 0; i < 4; ++i) in >> word;
  std::vector<float> mean;
  while (in >> word && word != "|") mean.push_back(std::strtof(word.c_str(), nullptr));
  return mean;
}

/// A few elements, from front to back.
std::vector<float> frozen_few(const std::vector<float>& all) {
  std::vector<float> few;
  for (std::size_t i = 0; i < kReadable && !all.empty(); ++i)
    few.push_back(all[i * (all.size() - 1) / (kReadable - 1)]);
  return few;
}

std::string frozen_row(const Compressor& compressor, const Shape& shape, bool keeps) {
  constexpr int kRanks = 2;
  RankGroup group(compressor, shape, kRanks, keeps);
  FrozenHash payloads, means, kept;
  std::vector<float> read_mean, read_residual;
  for (std::uint64_t step = 0; step < kFrozenSteps; ++step) {
    group.follow_phases(step);
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t r = 0; r < kRanks; ++r)
      gradients.push_back(frozen_gradient(static_cast<std::size_t>(shape.elements), step, r));
    const std::vector<float> mean = group.step(gradients, step);
    for (const auto& round : group.sent())
      for (const Payload& payload : round) payloads.add(payload);
    means.add(std::as_bytes(std::span(mean)));
    for (int r = 0; r < kRanks; ++r) {
      kept.add(std::as_bytes(std::span(group.residual(r))));
      for (const SavedField& field : group.codec(r).save()) kept.add(field.bytes);
    }
    if (step + 2 == kFrozenSteps)
      read_mean = frozen_few(mean), read_residual = frozen_few(group.residual(1));
  }
  return fmt::format("{}/{} {} {} {} {:.9g} | {:.9g}", shape.elements, shape.rows, payloads.text(),
                     means.text(), kept.text(), fmt::join(read_mean, " "),
                     fmt::join(read_residual, " "));
}

using FrozenTable = std::map<std::string, std::vector<std::string>>;  // by setting

std::string frozen_name(const std::string& strategy, bool keeps) {
  return strategy + (keeps ? " with a residual" : "");
}

FrozenTable read_frozen() {
  FrozenTable table;
  std::istringstream in(read_file(FROZEN_TABLE));
  std::vector<std::string>* rows = nullptr;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("# "))
      rows = &table[line.substr(2)];
    else
      rows->push_back(line);
  return table;
}

/// Of a setting, with a residual and without, as far as it allows either: visit(name, its rows).
template <class Visit>
void for_frozen(const Expectation& expected, Visit visit) {
  const auto compressor = made(expected.strategy);
  for (const bool keeps : residual_choices(*compressor))
    visit(frozen_name(expected.strategy, keeps), [&] {
      std::vector<std::string> rows;
      for (const Shape& shape : kFrozenShapes)
        if (!compressor->rounds(shape).empty())
          rows.push_back(frozen_row(*compressor, shape, keeps));
      return rows;
    });
}

class Frozen : public testing::TestWithParam<Expectation> {};

TEST_P(Frozen, PayloadsMeansAndResidualsAreAsTheyWere) {
  static const FrozenTable table = read_frozen();
  const double bound = frozen_bound(GetParam().strategy);
  const auto near = [bound](const std::vector<float>& values) {
    const auto most = static_cast<float>(bound * largest_magnitude(values));
    return testing::Pointwise(testing::FloatNear(most), values);
  };
  for_frozen(GetParam(), [&](const std::string& name, const auto& rows) {
    const std::vector<std::string> now = rows();
    const auto found = table.find(name);
    ASSERT_TRUE(found != table.end()) << name << " is not in " << FROZEN_TABLE;
    ASSERT_EQ(found->second.size(), now.size()) << name;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const std::string& then = found->second[i];
      SCOPED_TRACE(name + ": " + now[i]);
      if (bound == 0) {
        EXPECT_EQ(now[i], then);
      } else {
        EXPECT_TRUE(then.starts_with(now[i].substr(0, now[i].find(' ') + 1))) << "another shape";
        EXPECT_THAT(mean_of_row(now[i]), near(mean_of_row(then)));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Registry, Frozen, testing::ValuesIn(all_expectations()), name_of_test);

TEST(FrozenTable, HasTheSettingsOfTodayAlone) {
  const char* to = std::getenv("LINERATE_WRITE_FROZEN");
  std::ostringstream table;
  std::vector<std::string> names;
  for (const Expectation& expected : all_expectations())
    for_frozen(expected, [&](const std::string& name, const auto& rows) {
      names.push_back(name);
      if (!to) return;
      table << "# " << name << '\n';
      for (const std::string& row : rows()) table << row << '\n';
    });
  if (to) std::ofstream(to) << table.str();
  std::vector<std::string> known;
  for (const auto& [name, rows] : read_frozen()) known.push_back(name);
  EXPECT_THAT(known, testing::UnorderedElementsAreArray(names));
}

}  // namespace
}  // namespace linerate::compress
