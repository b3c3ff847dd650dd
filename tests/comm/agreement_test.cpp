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
using testing::ThrowsMessage;

TEST(Agreement, GathersTextsOfAnyLength) {
  run_ranks(3, [](Communicator& communicator) {
    const std::string mine(static_cast<std::size_t>(2 * communicator.rank()),
                           'x');  // rank 0's is empty
    EXPECT_THAT(gather_texts(communicator, mine, "texts"), ElementsAre("", "xx", "xxxx"));
    EXPECT_EQ(broadcast_text(communicator, std::to_string(communicator.rank()), "text"), "0");
  });
}

TEST(Agreement, EveryRankNamesBothSides) {
  run_ranks(3, [](Communicator& communicator) {
    const std::vector<std::string> same = {"conv 3x3", "linear 10"};
    EXPECT_NO_THROW(require_same(communicator, "model", same));
    const auto expect_named = [&](const std::vector<std::string>& other, const char* named) {
      const auto& own = communicator.rank() == 2 ? other : same;
      EXPECT_THAT(
          [&] { require_same(communicator, "model", own); },
          ThrowsMessage<CommError>(AllOf(HasSubstr("rank 0 has \"linear 10\""), HasSubstr(named))));
    };
    expect_named({"conv 3x3", "linear 11"}, "rank 2 has \"linear 11\"");
    expect_named({"conv 3x3"}, "rank 2 has nothing (only 1 entries)");
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

TEST(RequireSuccess, ThrowsWhatFailedOnSomeRankOnAllOfThem) {
  struct Case {
    std::function<void(int rank)> action;
    std::string outcome;
  };
  const std::vector<Case> cases = {
      {[](int) {}, "fine"},
      {[](int) { throw InputError("data", "no such folder"); },
       "3 data: no such folder, on every rank"},
      {[](int r) {
         if (r == 1 || r == 2) throw InputError("data", "no such folder");
         if (r == 3) throw UsageError("--batch: too large");
       },
       "3 rank 1: data: no such folder; rank 3: --batch: too large, on every rank"},
      {[](int) { throw std::runtime_error("bad"); }, "70 bad, on every rank"}};
  run_ranks(4, [&](Communicator& communicator) {
    for (const Case& one : cases)
      EXPECT_EQ(outcome(communicator, [&] { one.action(communicator.rank()); }), one.outcome);
  });
}

TEST(Agreement, OneRanksProblemIsEveryRanksError) {
  run_ranks(2, [](Communicator& communicator) {
    EXPECT_NO_THROW(require_no_problem(communicator, "model", ""));
    const std::string problem = communicator.rank() == 1 ? "weight is sparse" : "";
    EXPECT_THAT([&] { require_no_problem(communicator, "model", problem); },
                ThrowsMessage<UsageError>("model: rank 1: weight is sparse"));
  });
}

}  // namespace
}  // namespace linerate::comm
