// Values that files and transcripts hold: a hash that changes makes them unreadable.
#include "linerate/core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace linerate {
namespace {

// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv: the published values.
TEST(Hash, OfBytesIsFnv1a) {
  EXPECT_EQ(hash_bytes(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(hash_bytes("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(hash_bytes("foobar"), 0x85944171f73967e8ull);
}

TEST(Hash, OfAValueIsThatOfItsBytesLowestFirst) {
  EXPECT_EQ(hash_value(0x0807060504030201ull), hash_bytes("\1\2\3\4\5\6\7\10"));
}

// The hash at the end of a checkpoint: files of every version must stay readable.
TEST(Hash, OfWordsStaysAsCheckpointsHaveIt) {
  EXPECT_EQ(hash_words(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(hash_words("foobar"), hash_bytes("foobar"));  // no whole word
  // (start ^ word) * prime, folded, then the byte that is left, by hand in Python.
  EXPECT_EQ(hash_words("checkpoint"), 0x9d93a7268655387dull);
  EXPECT_EQ(hash_words("sixteen bytes of"), 0x4189fbe4002d23d5ull);
}

TEST(Hash, OfWordsSeesEveryBitAndGoesOnFromWhereItStopped) {
  const std::string text = "sixteen bytes of text and five";
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string other = text;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(hash_words(other), hash_words(text)) << bit;
  }
  EXPECT_EQ(hash_words(text.substr(16), hash_words(text.substr(0, 16))), hash_words(text));
}

TEST(Rng, DependsOnKeyAndCounterAlone) {
  EXPECT_EQ(random_bits(1, 2), random_bits(1, 2));
  EXPECT_NE(random_bits(1, 2), random_bits(2, 1));
  EXPECT_NE(random_key(1, 2), random_key(2, 1));
}

TEST(Rng, UnitHasMeanAndVarianceOfTheUniform) {
  constexpr int n = 100'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = random_unit(7, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  // Standard error of the mean: sqrt(1/12/n) = 9.1e-4; of the second moment: sqrt(4/45/n) = 9.4e-4.
  // Five of them.
  EXPECT_NEAR(sum / n, 1.0 / 2, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

TEST(Rng, BelowStaysBelow) {
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(random_below(3, i, 7), 7u);
}

}  // namespace
}  // namespace linerate
