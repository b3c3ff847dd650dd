// The cases of communicator_suite.hpp and ending_suite.hpp as tests of a back end. One source of
// its program includes this, says how ranks come together, and on how many.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "comm/ending_suite.hpp"

namespace linerate::comm {

/// Of those that `threads` would be, or 0: the job has so many as it has.
std::vector<int> numbers_of_ranks(std::vector<int> threads);
/// Each rank runs it.
void on_ranks(int ranks, void (*run)(Communicator&), const CommunicatorOptions& options);

class BackEnd : public ::testing::TestWithParam<std::tuple<int, suite::Case>> {};

TEST_P(BackEnd, Holds) {
  const auto& [ranks, one] = GetParam();
  const suite::UnderLink link(one.link);
  on_ranks(ranks, one.run,
           {.timeout = one.timeout.count() > 0 ? one.timeout : Duration{suite::short_timeout},
            .checked = one.checked,
            .start_timeout = Duration{60}});
}

TEST(BackEndTimes, ThatAreNoneAreRefused) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const double seconds : {0.0, -1.0, 1e-12, 1e30, kNone, -kNone, HUGE_VAL})
    EXPECT_THROW(on_ranks(1, [](Communicator&) {}, {.timeout = Duration{seconds}}), UsageError)
        << seconds;
}

/// All that it does without a link, and that it is no faster than one.
inline std::vector<suite::Case> cases_under_a_link() {
  std::vector<suite::Case> all = suite::cases();
  for (suite::Case& one : all) one.link = suite::kFastLink;
  all.push_back({.name = "is_no_faster_than_its_link",
                 .run = suite::is_no_faster_than_its_link,
                 .checked = false,
                 .link = suite::kSlowLink});
  return all;
}

inline std::string name_of_case(const ::testing::TestParamInfo<BackEnd::ParamType>& info) {
  const auto& [ranks, one] = info.param;
  return one.name + (ranks > 0 ? "_on_" + std::to_string(ranks) : std::string());
}

INSTANTIATE_TEST_SUITE_P(Cases, BackEnd,
                         ::testing::Combine(::testing::ValuesIn(numbers_of_ranks({1, 2, 3, 4, 5})),
                                            ::testing::ValuesIn(suite::cases())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(UnderALink, BackEnd,
                         ::testing::Combine(::testing::ValuesIn(numbers_of_ranks({2, 3})),
                                            ::testing::ValuesIn(cases_under_a_link())),
                         name_of_case);
/// Where ranks are processes, a driver starts a job for each.
INSTANTIATE_TEST_SUITE_P(Endings, BackEnd,
                         ::testing::Combine(::testing::ValuesIn(numbers_of_ranks({2, 3, 4})),
                                            ::testing::ValuesIn(suite::endings())),
                         name_of_case);

}  // namespace linerate::comm
