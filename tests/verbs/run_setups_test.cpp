#include "linerate/verbs/contest.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "support/message_of.hpp"

namespace linerate::verbs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunSetups : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return (folder_ / "r.json").string(); }

  /// Models of the file's setups after a launch of two ranks that measures these.
  std::vector<std::string> launch(const std::vector<std::string>& models, bool extend) {
    comm::run_ranks(2, [&](comm::Communicator& communicator) {
      std::vector<NewSetup> setups;
      for (const std::string& model : models) setups.push_back(measured(model));
      run_setups(communicator, file(), extend, std::move(setups));
    });
    std::vector<std::string> found;
    for (const doc::Setup& s : doc::load_evaluation(file()).setups) found.push_back(s.model);
    return found;
  }

  static NewSetup measured(const std::string& model) {
    doc::Setup setup;
    setup.model = model, setup.ranks = 2, setup.transport = "thread", setup.network = "host";
    return {setup, [model](doc::Setup& s) {
              if (model == "broken") throw UsageError("broken");
              s.notes.push_back("measured " + model);
            }};
  }

  std::string refusal(const std::vector<std::string>& models, bool extend) {
    return support::message_of([&] { launch(models, extend); });
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(RunSetups, AreWrittenInTheirOrderAndJoinThoseOfTheFile) {
  EXPECT_THAT(launch({"lenet", "vgg16"}, false), ElementsAre("lenet", "vgg16"));
  EXPECT_THAT(launch({"mlp"}, true), ElementsAre("lenet", "vgg16", "mlp"));
  EXPECT_THAT(doc::load_evaluation(file()).setups.back().notes, ElementsAre("measured mlp"));
}

TEST_F(RunSetups, DoNotWriteOverAFile) {
  launch({"lenet"}, false);
  EXPECT_THAT(refusal({"vgg16"}, false), HasSubstr("add to it with --append"));
}

TEST_F(RunSetups, OfATitleThatTheFileHoldsAreRefusedBeforeAnyRuns) {
  launch({"lenet"}, false);
  EXPECT_THAT(refusal({"broken", "lenet"}, true),
              HasSubstr("expected a new setup, found lenet, 2 ranks, host in it"));
}

TEST_F(RunSetups, ThatWereDoneStayWhereALaterOneFails) {
  EXPECT_EQ(refusal({"lenet", "broken"}, false), "broken");
  EXPECT_EQ(doc::load_evaluation(file()).setups.size(), 1u);
}

TEST(RunSetupsWithoutAFile, AreCompleteOnRank0) {
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    doc::Setup setup;
    setup.model = "lenet";
    const doc::Evaluation all =
        run_setups(communicator, "", false, {{setup, [](doc::Setup& s) { s.batch = 8; }}});
    EXPECT_EQ(all.setups.front().batch, 8);
  });
}

}  // namespace
}  // namespace linerate::verbs
