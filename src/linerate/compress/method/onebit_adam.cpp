// onebit-adam: Tang et al. 2021 (arXiv 2102.02888). Ranks send momentum instead of gradients, a bit
// an element at its root mean square. The optimizer sees the momentum m, alike on all ranks. It
// steps by m / (sqrt(v) + eps) with a second moment v that it has frozen.
//
// The first `freeze_step` steps are a phase of their own. Gradients are then summed as they are,
// and the optimizer gets their mean. Each rank meanwhile computes m, so that m is there when signs
// begin.
//
// Example with freeze_step=100: at step 100 all ranks have the same m. Each rank makes its own beta
// m + (1 - beta) g, and sends its signs. The mean of the decoded signs is the new m of all ranks.
//
// A sign has no zero. So parameters whose gradient is always zero need a mask of the optimizer's.
// This is the worker's half and, with beta=0, the server's of the two-phase exchange
// (two_phase.hpp).
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// In the dense phase there is a round too, because the codec must see the mean to follow the
/// momentum.
BuiltInMethod onebit_adam(double beta, std::int64_t dense_steps) {
  const auto steady =
      one_round([](std::int64_t n) { return gathered(bytes_of(onebit_adam_format(), n)); });
  return {.rounds = [=](const Shape& shape, int phase) -> std::vector<Round> {
            const bool is_dense = dense_steps > 0 && phase == 0;
            if (!is_dense || steady(shape, phase).empty()) return steady(shape, phase);
            return {{Combine::sum, DType::f32, 4 * shape.elements}};
          },
          .choice = CodecWith<OneBitAdamCodec, double, bool>{{beta, dense_steps > 0}},
          .phases = {.warm_up = dense_warm_up(dense_steps)},
          .momentum = Momentum::adams,
          .is_two_phase = true,
          .of_means = [] { return onebit_adam(0, 0); },
          .remembered_bytes = [](const Shape& shape) { return 4 * shape.elements; }};
}

std::unique_ptr<const Compressor> make_onebit_adam(doc::OptionReader& options) {
  const double beta = read_momentum(options, "beta", 0.9);
  return built_in(onebit_adam(beta, read_warm_up(options, "freeze_step")));
}

}  // namespace

SignFormat onebit_adam_format() { return {"onebit-adam", LevelRule::root_mean_square, 0}; }

CompressorLine compressor_onebit_adam() {
  return {"onebit-adam", make_onebit_adam,
          "Momentum, a bit an element at its root mean square; what is not sent is kept: "
          "onebit-adam(beta=0.9, freeze_step=0).",
          "Tang et al. 2021 (arXiv 2102.02888)"};
}

}  // namespace linerate::compress
