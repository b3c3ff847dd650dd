#include "linerate/core/intervals.hpp"

#include <gmock/gmock.h>

#include "linerate/core/random.hpp"

namespace linerate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Intervals, UnionSortsJoinsWhatTouchesAndDropsWhatIsEmpty) {
  EXPECT_THAT(union_of({{5, 7}, {0, 2}, {2, 3}, {6, 9}, {4, 4}, {12, 11}}),
              ElementsAre(Span{0, 3}, Span{5, 9}));
  EXPECT_THAT(union_of(std::vector<Span>{}), IsEmpty());
  EXPECT_THAT(union_of(SpanSet{{0, 2}, {6, 8}}, SpanSet{{1, 6}}), ElementsAre(Span{0, 8}));
}

TEST(Intervals, DifferenceLeavesWhatIsNotCovered) {
  EXPECT_THAT(difference_of({{0, 10}, {20, 30}}, {{2, 3}, {5, 22}, {30, 40}}),
              ElementsAre(Span{0, 2}, Span{3, 5}, Span{22, 30}));
  EXPECT_THAT(difference_of({{0, 10}}, {{0, 10}}), IsEmpty());
  // One span that covers the ends of several.
  EXPECT_THAT(difference_of({{0, 2}, {3, 5}, {6, 8}}, {{1, 7}}),
              ElementsAre(Span{0, 1}, Span{7, 8}));
}

TEST(Intervals, ClippedCutsAtTheWindow) {
  const SpanSet set = {{0, 4}, {6, 8}, {10, 14}};
  EXPECT_THAT(clipped(set, {2, 12}), ElementsAre(Span{2, 4}, Span{6, 8}, Span{10, 12}));
  EXPECT_THAT(clipped(set, {4, 6}), IsEmpty());
  EXPECT_THAT(clipped(set, {14, 20}), IsEmpty());
}

TEST(Intervals, LengthIsInNanoseconds) {
  EXPECT_EQ(length_of({{0, 3}, {5, 9}}), 7);
  EXPECT_DOUBLE_EQ(seconds_of({{0, 1'500'000'000}}), 1.5);
}

/// Bit t of the result: some span holds [t, t + 1).
std::vector<bool> covered(const std::vector<Span>& spans) {
  std::vector<bool> at(64);
  for (const Span& s : spans)
    for (std::int64_t t = s.start_ns; t < s.end_ns; ++t) at[static_cast<std::size_t>(t)] = true;
  return at;
}

void expect_form(const SpanSet& set) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    EXPECT_GT(set[i].length(), 0);
    if (i > 0) {
      EXPECT_GT(set[i].start_ns, set[i - 1].end_ns);
    }
  }
}

// The oracle is a bit for every nanosecond.
TEST(Intervals, RandomSetsAgreeWithBits) {
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t n) { return random_below(7, drawn++, n); };
  const auto draw = [&] {
    std::vector<Span> spans(below(8));
    for (Span& s : spans) {
      s.start_ns = static_cast<std::int64_t>(below(56));
      s.end_ns = s.start_ns + static_cast<std::int64_t>(below(8));
    }
    return spans;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Span> x = draw(), y = draw();
    const SpanSet a = union_of(x), b = union_of(y);
    const SpanSet either = union_of(a, b), both = intersection_of(a, b), rest = difference_of(a, b);
    const SpanSet cut = clipped(a, {10, 40});
    for (const SpanSet* set : {&a, &b, &either, &both, &rest, &cut}) expect_form(*set);
    const std::vector<bool> in_x = covered(x), in_y = covered(y), in_either = covered(either),
                            in_both = covered(both), in_rest = covered(rest), in_cut = covered(cut);
    for (std::size_t t = 0; t < 64; ++t) {
      EXPECT_EQ(in_either[t], in_x[t] || in_y[t]) << "round " << round << ", t " << t;
      EXPECT_EQ(in_both[t], in_x[t] && in_y[t]) << "round " << round << ", t " << t;
      EXPECT_EQ(in_rest[t], in_x[t] && !in_y[t]) << "round " << round << ", t " << t;
      EXPECT_EQ(in_cut[t], in_x[t] && t >= 10 && t < 40) << "round " << round << ", t " << t;
    }
    EXPECT_EQ(length_of(both) + length_of(rest), length_of(a));
  }
}

}  // namespace
}  // namespace linerate
