// onebit-adam: Tang et al. 2021 (arXiv 2102.02888): momentum instead of gradients, a bit an element
// at its root mean square. What the optimizer sees is the momentum m, alike on all ranks: it steps
// by m / (sqrt(v) + eps) with a second moment v that it has frozen. In the phase before, of
// `freeze_step` steps, gradients are summed as they are and the mean is theirs, so that m is there
// when signs begin. A sign has no zero: parameters whose gradient is
// always zero need a mask of the optimizer's. This is the worker's half and, with beta=0, the
// server's of the two-phase exchange (two_phase.hpp).
#include <algorithm>

#include "linerate/compress/method/momentum.hpp"
#include "linerate/compress/method/scaled_signs.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/method/warm_up.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kOnebitAdam = "onebit-adam";

class OneBitAdamCodec : public Codec {
 public:
  OneBitAdamCodec(const OneBitAdamSettings& options, const Shape& shape)
      : average_(options.beta),
        has_warm_up_(options.freeze_step > 0),
        momentum_(std::vector<float>(to_index(shape.elements))),
        local_(momentum_.now().size()),
        signs_(scaled_sign_codec(onebit_adam_format(), shape)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    is_dense_ = has_warm_up_ && input.phase == 0;
    if (is_dense_) return send_dense(input, payload);
    average_(momentum_.now(), input.gradient, local_);
    return signs_->encode(0, {local_, input.residual, input.keys, input.ranks}, payload);
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    if (is_dense_) {
      decode_dense(arrived, mean);
      average_(momentum_.now(), mean, momentum_.next());
    } else {
      signs_->decode(0, arrived, mean);
      std::copy(mean.begin(), mean.end(), momentum_.next().begin());
    }
  }

  /// As decoded, so alike on all ranks.
  std::vector<StateField> state() override { return {{"momentum", Passing::same, momentum_}}; }

 private:
  /// With all that another method may have left.
  static std::size_t send_dense(const Input& input, std::span<std::byte> payload) {
    for (std::size_t i = 0; i < input.gradient.size(); ++i) {
      const float kept = input.residual.empty() ? 0 : input.residual[i];
      write_at(payload, 4 * i, input.gradient[i] + kept);
    }
    std::fill(input.residual.begin(), input.residual.end(), 0.0f);
    return 4 * input.gradient.size();
  }
  static void decode_dense(const Arrived& arrived, std::span<float> mean) {
    read_mean(arrived, mean, kOnebitAdam);
    if (!all_finite(mean)) throw InputError("onebit-adam: the sum of gradients is not finite");
  }

  MovingAverage average_;
  bool has_warm_up_;
  bool is_dense_ = false;  // in the step at hand
  Kept<std::vector<float>> momentum_;
  std::vector<float> local_;
  std::unique_ptr<Codec> signs_;
};

class OneBitAdam : public Compressor {
 public:
  explicit OneBitAdam(const OneBitAdamSettings& options) : options_(options) {}
  Phases phases() const override { return {.warm_up = dense_warm_up(options_.freeze_step)}; }
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(
        shape, {.combine = Combine::gather, .bytes = bytes_of(onebit_adam_format(), shape)});
  }
  /// Dense, yet a round of the codec's: it follows the momentum of the mean.
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    std::vector<Round> steady = rounds(shape);
    if (steady.empty() || phase + 1 >= phases().count()) return steady;
    return {{Combine::sum, DType::f32, 4 * shape.elements}};
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<OneBitAdamCodec>(options_, shape);
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

std::unique_ptr<const Compressor> make_onebit_adam(doc::OptionReader& options) {
  return std::make_unique<OneBitAdam>(read_onebit_adam(options));
}

}  // namespace

SignFormat onebit_adam_format() {
  return {std::string(kOnebitAdam), LevelRule::root_mean_square, 0};
}

OneBitAdamSettings read_onebit_adam(doc::OptionReader& options) {
  OneBitAdamSettings settings;
  settings.beta = read_momentum(options, "beta", settings.beta);
  settings.freeze_step = read_warm_up(options, "freeze_step");
  return settings;
}

CompressorLine compressor_onebit_adam() {
  return {"onebit-adam", make_onebit_adam,
          "Momentum, a bit an element at its root mean square; what is not sent is kept: "
          "onebit-adam(beta=0.9, freeze_step=0).",
          "Tang et al. 2021 (arXiv 2102.02888)"};
}

}  // namespace linerate::compress
