#include "linerate/compare/accuracy.hpp"

#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"

namespace linerate::compare {
namespace {

TEST(EvaluationText, SaysBaselinesNoisePropertiesAccuracyAndTheCount) {
  EXPECT_EQ(to_text({{sample_setup()}}),
            R"(lenet 1x28x28 fashion-mnist, batch 32, 2 ranks, host
  strategy                role         step       over rounds  / fp32  / 16-bit  gains  encode  network   decode  exposed     sent
  ddp                     fp32       1.00 s  1.00 s .. 1.00 s   1.000     1.250            0 s   400 ms      0 s   100 ms  1.00 MB
  ddp(wire=fp16)          16-bit     800 ms  800 ms .. 800 ms   0.800     1.000            0 s   400 ms      0 s   100 ms  1.00 MB
  ddp                     repeat     1.00 s  980 ms .. 1.02 s   1.000     1.250            0 s   400 ms      0 s   100 ms  1.00 MB
  ddp+topk(density=0.01)  candidate  900 ms  900 ms .. 2.00 s   0.900     1.125  fp32   200 ms   400 ms  70.0 ms   100 ms  1.00 MB
  noise floor (A/A): 2.0 %; a gain counts if it is larger

  candidate               summed  coding of step  network hidden  options
  ddp+topk(density=0.01)  no                30 %            75 %  1: density

  strategy                seeds         after equal steps          after equal time            steps to target / fp32  diverged
  ddp                         2  89.00 % (88.00 .. 90.00)  89.00 % (88.00 .. 90.00)                 1.00 [0.75, 1.33]         0
  ddp+topk(density=0.01)      2  78.75 % (70.00 .. 87.50)                         -  1.14 [1.00, 1.33], 1 of 2 missed         0
  target: test accuracy 87.00 % (fp32's last less its spread over seeds), tested every 10 steps

1 of 1 setups gain over tuned fp32, 0 of 1 over the better of fp32 and the 16-bit exchange.
)");
}

TEST(EvaluationText, WithoutAnARunNoGainCounts) {
  doc::Setup s = sample_setup();
  s.timed.erase(s.timed.begin() + 2);
  EXPECT_EQ(noise_sentence(s), "no A/A run, so the noise floor is not known and no gain counts");
}

}  // namespace
}  // namespace linerate::compare
