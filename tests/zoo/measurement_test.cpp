// What is measured is a Workload that may be kept, whatever the times.
#include "linerate/zoo/measurement.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "linerate/doc/validate.hpp"

namespace linerate::zoo {
namespace {

// A step that is the sum of its parts leaves a tail of 0, which is found by other roundings.
TEST(Measurement, MakesAWorkloadOfAnyTimes) {
  std::mt19937_64 random(1);
  const auto time = [&random] {
    return std::uniform_real_distribution(0.0, 1.0)(random) *
           std::pow(10, std::uniform_int_distribution(-9, 3)(random));
  };
  for (int i = 0; i < 100'000; ++i) {
    const double forward_s = time(), backward_s = time(), update_s = time();
    doc::Workload w;
    const double step_s = i % 2 == 0 ? 0 : time();
    set_step({step_s, 0.9 * step_s, 1.2 * step_s}, forward_s, backward_s, update_s, w);
    w.gradients = {{"g", 1, DType::f32, -1, 0, w.backward_s}};
    ASSERT_NO_THROW(validate(w)) << forward_s << " " << backward_s << " " << update_s;
    ASSERT_GE(w.outside_backward_s(), 0);
    ASSERT_LE(w.step_low_s, w.step_s);
    ASSERT_GE(w.step_high_s, w.step_s);
  }
}

}  // namespace
}  // namespace linerate::zoo
