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
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kOnebitAdam = "onebit-adam";

class OneBitAdam : public BuiltIn {
 public:
  explicit OneBitAdam(const OneBitAdamSettings& options) : options_(options) {}
  Phases phases() const override { return {.warm_up = dense_warm_up(options_.freeze_step)}; }
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape, gathered(bytes_of(onebit_adam_format(), shape.elements)));
  }
  /// In the dense phase there is a round too, because the codec must see the mean to follow the
  /// momentum.
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    std::vector<Round> steady = rounds(shape);
    if (steady.empty() || phase + 1 >= phases().count()) return steady;
    return {{Combine::sum, DType::f32, 4 * shape.elements}};
  }
  CodecChoice choice(const Shape&) const override {
    return CodecWith<OneBitAdamCodec, OneBitAdamSettings>{{options_}};
  }
  Momentum momentum() const override { return Momentum::adams; }
  bool is_two_phase() const override { return true; }
  std::unique_ptr<const Compressor> of_means() const override {
    return std::make_unique<OneBitAdam>(OneBitAdamSettings{.beta = 0});
  }
  Residual residual() const override { return Residual::needed; }
  std::int64_t remembered_bytes(const Shape& shape) const override { return 4 * shape.elements; }

 private:
  OneBitAdamSettings options_;
};

OneBitAdamSettings read_onebit_adam(doc::OptionReader& options) {
  OneBitAdamSettings settings;
  settings.beta = read_momentum(options, "beta", settings.beta);
  settings.freeze_step = read_warm_up(options, "freeze_step");
  return settings;
}

std::unique_ptr<const Compressor> make_onebit_adam(doc::OptionReader& options) {
  return std::make_unique<OneBitAdam>(read_onebit_adam(options));
}

}  // namespace

SignFormat onebit_adam_format() {
  return {std::string(kOnebitAdam), LevelRule::root_mean_square, 0};
}

CompressorLine compressor_onebit_adam() {
  return {"onebit-adam", make_onebit_adam,
          "Momentum, a bit an element at its root mean square; what is not sent is kept: "
          "onebit-adam(beta=0.9, freeze_step=0).",
          "Tang et al. 2021 (arXiv 2102.02888)"};
}

}  // namespace linerate::compress
