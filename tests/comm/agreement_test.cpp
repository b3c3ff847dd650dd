#include "linerate/comm/fingerprint.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <stdexcept>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Agreement, GathersTextsOfAnyLength) {
  run_ranks(3, [](Communicator& communicator) {
    const std::string mine(static_cast<std::size_t>(2 * communicator.rank()),
                           'x');  // rank 0's is empty
    EXPECT_THAT(gather_texts(communicator, mine, "texts"), ElementsAre("", "xx", "xxxx"));
    EXPECT_EQ(broadcast_text(communicator, std::to_string(communicator.rank()), "text"), "0");
  });
}

/// What require_same throws on this rank, empty where it throws nothing.
std::string difference(Communicator& communicator, const std::vector<std::string>& lines) {
  try {
    require_same(communicator, "model", lines);
    return "";
  } catch (const CommError& e) {
    return e.what();
  }
}

TEST(Agreement, EveryRankNamesBothSides) {
  run_ranks(3, [](Communicator& communicator) {
    const std::vector<std::string> same = {"conv 3x3", "linear 10"};
    EXPECT_EQ(difference(communicator, same), "");
    std::vector<std::string> other = same;
    if (communicator.rank() == 2) other[1] = "linear 11";
    EXPECT_THAT(difference(communicator, other), AllOf(HasSubstr("rank 0 has \"linear 10\""),
                                                       HasSubstr("rank 2 has \"linear 11\"")));
    if (communicator.rank() == 2) other = {"conv 3x3"};
    EXPECT_THAT(difference(communicator, communicator.rank() == 2 ? other : same),
                AllOf(HasSubstr("rank 0 has \"linear 10\""),
                      HasSubstr("rank 2 has nothing (only 1 entries)")));
  });
}

/// What require_success throws on this rank: exit code and message, "on every rank" at its end
/// where the error says so; "fine" where it throws nothing.
std::string outcome(Communicator& communicator, const std::function<void()>& action) {
  try {
    require_success(communicator, "setting up", action);
    return "fine";
  } catch (const Error& e) {
    return std::to_string(e.exit_code()) + " " + e.what() +
           (e.on_every_rank() ? ", on every rank" : "");
  }
}

TEST(RequireSuccess, OfAllRanksIsSilent) {
  run_ranks(2, [](Communicator& communicator) { EXPECT_EQ(outcome(communicator, [] {}), "fine"); });
}

TEST(RequireSuccess, AFailureThatAllShareIsThrownAsItIs) {
  run_ranks(3, [](Communicator& communicator) {
    EXPECT_EQ(outcome(communicator, [] { throw InputError("data", "no such folder"); }),
              "3 data: no such folder, on every rank");
  });
}

TEST(RequireSuccess, AFailureOfSomeRanksIsThrownOnAllAndNamesThem) {
  run_ranks(4, [](Communicator& communicator) {
    const int r = communicator.rank();
    const auto action = [r] {
      if (r == 1 || r == 2) throw InputError("data", "no such folder");
      if (r == 3) throw UsageError("--batch: too large");
    };
    EXPECT_EQ(outcome(communicator, action),
              "3 rank 1: data: no such folder; rank 3: --batch: too large, on every rank");
  });
}

TEST(RequireSuccess, WhatIsNoErrorOfLinerateIsInternal) {
  run_ranks(2, [](Communicator& communicator) {
    EXPECT_EQ(outcome(communicator, [] { throw std::runtime_error("bad"); }),
              "70 bad, on every rank");
  });
}

TEST(Agreement, OneRanksProblemIsEveryRanksError) {
  run_ranks(2, [](Communicator& communicator) {
    EXPECT_NO_THROW(require_no_problem(communicator, "model", ""));
    try {
      require_no_problem(communicator, "model", communicator.rank() == 1 ? "weight is sparse" : "");
      ADD_FAILURE() << "rank " << communicator.rank() << " went on";
    } catch (const UsageError& e) {
      EXPECT_STREQ(e.what(), "model: rank 1: weight is sparse");
    }
  });
}

}  // namespace
}  // namespace linerate::comm
