// Which settings a resumed run may change, and what is said about those that did.
#include "linerate/zoo/checkpoint.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"

namespace linerate::zoo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;

Settings sample() {
  return {{"model", "mlp", "--model"},
          {"learning rate", "0.1", "--lr"},
          {"ranks", "2", "mpirun -n", OnResume::noted},
          {"last step", "40", "--steps", OnResume::free}};
}

TEST(RunSettings, ACheckpointKeepsAllButTheFreeOnes) {
  EXPECT_THAT(kept(sample()),
              ElementsAre(Pair("learning rate", "0.1"), Pair("model", "mlp"), Pair("ranks", "2")));
}

TEST(RunSettings, EqualOnesSayNothing) {
  EXPECT_THAT(notes_on_resume(sample(), kept(sample()), "ck/checkpoint"), IsEmpty());
}

TEST(RunSettings, EveryOneThatMustNotChangeIsNamedWithBothValuesAndItsOption) {
  const std::map<std::string, std::string> before = {
      {"model", "lenet"}, {"learning rate", "0.10000000000000001"}, {"ranks", "2"}};
  EXPECT_THAT([&] { notes_on_resume(sample(), before, "ck/checkpoint"); },
              ThrowsMessage<UsageError>(HasSubstr(
                  "ck/checkpoint was written with model lenet, this run asks for mlp (--model); "
                  "learning rate 0.10000000000000001, this run asks for 0.1 (--lr). "
                  "Resume with the options it was written with")));
}

TEST(RunSettings, OthersAreNotedAndFreeOnesAreNot) {
  EXPECT_THAT(
      notes_on_resume(
          sample(),
          {{"model", "mlp"}, {"learning rate", "0.1"}, {"ranks", "1"}, {"last step", "7"}},
          "ck/checkpoint"),
      ElementsAre("note: ck/checkpoint was written with ranks 1, this run asks for 2 (mpirun -n)"));
}

TEST(RunSettings, WhatAnOlderCheckpointDoesNotSayIsNotedOnce) {
  EXPECT_THAT(notes_on_resume(sample(), {{"model", "mlp"}}, "ck/checkpoint"),
              ElementsAre(HasSubstr("did not write down learning rate, ranks:")));
}

}  // namespace
}  // namespace linerate::zoo
