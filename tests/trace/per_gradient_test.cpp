#include "linerate/trace/per_gradient/per_gradient.hpp"

#include <gmock/gmock.h>

#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

doc::Workload read(const std::string& text, const PerGradientOptions& options = {}) {
  InputFile input = InputFile::from_memory(text, "net.bk.log");
  return read_per_gradient_log(input, options);
}

TEST(PerGradientLog, AddsWaitsUpAndAveragesOverBatches) {
  // Batch 1 waits 10, 20 us; batch 2 waits 30, 40 us: means 20 and 30, so ready at 20 and 50 us.
  const doc::Workload w = read("prose\n2\n2\n10,400\n20,8\n30,400\n40,8\n");
  ASSERT_EQ(w.gradients.size(), 2u);
  EXPECT_NEAR(w.gradients[0].ready_s, 20e-6, 1e-15);
  EXPECT_NEAR(w.gradients[1].ready_s, 50e-6, 1e-15);
  EXPECT_NEAR(w.backward_s, 50e-6, 1e-15);
  EXPECT_EQ(w.gradients[0].elements, 100);
  EXPECT_EQ(w.gradients[0].registration, 1);  // written in reverse registration order
  EXPECT_FALSE(w.step_s.has_value());
}

TEST(PerGradientLog, StepTimeOfForwardAndBackwardLeavesTheUpdateUnknown) {
  const doc::Workload w = read("prose\n1\n1\n100,4\n",
                               {.step_time_s = 300e-6, .covers = StepTimeCovers::forward_backward});
  EXPECT_NEAR(*w.forward_s, 200e-6, 1e-12);
  EXPECT_FALSE(w.step_s || w.update_s);
}

TEST(PerGradientLog, NamesTheLineThatIsWrong) {
  const auto message = [](const std::string& text) { return refusal_of([&] { read(text); }); };
  EXPECT_THAT(message("prose\n1\n2\n10,400\nten,8\n"),
              testing::HasSubstr("net.bk.log:5: expected \"wait_us,bytes\""));
  EXPECT_THAT(message("prose\n1\n3\n10,400\n"), testing::HasSubstr("cut off"));
  EXPECT_THAT(message("prose\n1\n1\n10,401\n"), testing::HasSubstr("multiple of 4"));
  EXPECT_THAT(message("prose\nmany\n1\n"),
              testing::HasSubstr(":2: expected the number of batches"));
}

TEST(PerGradientLog, IsToldFromItsFirstFourLines) {
  EXPECT_TRUE(is_per_gradient_log("prose, with commas\n1\n161\n12.5,400\n"));
  EXPECT_FALSE(is_per_gradient_log("# Size  Latency\n1 2.0\n2 2.0\n"));
}

TEST(AddCost, MustAscend) {
  InputFile good = InputFile::from_memory("40,1e-5\n80,9e-6\n", "add.log");
  EXPECT_EQ(read_add_cost(good).size(), 2u);
  InputFile bad = InputFile::from_memory("80,1e-5\n40,9e-6\n", "add.log");
  EXPECT_THROW(read_add_cost(bad), InputError);
}

}  // namespace
}  // namespace linerate::trace
