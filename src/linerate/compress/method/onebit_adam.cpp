// onebit-adam: Tang et al. 2021 (arXiv 2102.02888): momentum instead of gradients, a bit an element
// at its root mean square. What the optimizer sees is the momentum m, alike on all ranks: it steps
// by m / (sqrt(v) + eps) with a second moment v that it has frozen. For `freeze_step` steps before,
// gradients travel dense and the mean is theirs. A sign has no zero: parameters whose gradient is
// always zero need a mask of the optimizer's. This is the worker's half and, with beta=0, the
// server's of the two-phase exchange (two_phase.hpp).
#include <fmt/format.h>

#include <cstring>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/method/scaled_signs.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

struct Options {
  double beta = 0.9;
  std::int64_t freeze_step = 0;
};

SignFormat format() { return {"onebit-adam", LevelRule::root_mean_square, 0}; }

class OneBitAdamCodec : public Codec {
 public:
  OneBitAdamCodec(const Options& options, const Shape& shape)
      : keep_(static_cast<float>(options.beta)),
        take_(static_cast<float>(1 - options.beta)),
        freeze_step_(static_cast<std::uint64_t>(options.freeze_step)),
        momentum_(static_cast<std::size_t>(shape.elements)),
        local_(momentum_.size()),
        signs_(scaled_sign_codec(format(), shape)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    const KeepDenormals keep;
    if (is_dense()) {
      std::memcpy(payload.data(), input.gradient.data(), dense_bytes());
      return dense_bytes();
    }
    for (std::size_t i = 0; i < local_.size(); ++i)
      local_[i] = keep_ * momentum_[i] + take_ * input.gradient[i];
    return signs_->encode(0, {local_, input.residual, input.keys, input.ranks}, payload);
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    const KeepDenormals keep;
    if (is_dense()) {
      decode_dense(arrived, mean);
      for (std::size_t i = 0; i < momentum_.size(); ++i)
        momentum_[i] = keep_ * momentum_[i] + take_ * mean[i];
    } else {
      signs_->decode(0, arrived, mean);
      std::copy(mean.begin(), mean.end(), momentum_.begin());
    }
    ++step_;
  }

  /// u64 steps, f32 momentum[n].
  std::vector<std::byte> save() const override {
    std::vector<std::byte> saved(8 + dense_bytes());
    write_at<std::uint64_t>(saved, 0, step_);
    std::memcpy(saved.data() + 8, momentum_.data(), dense_bytes());
    return saved;
  }
  void load(std::span<const std::byte> saved) override {
    if (saved.size() != 8 + dense_bytes())
      throw InputError("checkpoint", fmt::format("onebit-adam: expected {} bytes, found {}",
                                                 8 + dense_bytes(), saved.size()));
    std::vector<float> momentum(momentum_.size());
    std::memcpy(momentum.data(), saved.data() + 8, dense_bytes());
    if (!all_finite(momentum))
      throw InputError("checkpoint", "onebit-adam: momentum is not finite");
    step_ = read_at<std::uint64_t>(saved, 0);
    momentum_ = std::move(momentum);
  }

 private:
  bool is_dense() const { return step_ < freeze_step_; }
  std::size_t dense_bytes() const { return 4 * momentum_.size(); }
  void decode_dense(const Arrived& arrived, std::span<float> mean) const {
    check_sizes(arrived, static_cast<std::size_t>(arrived.ranks), dense_bytes(), "onebit-adam");
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] += read_at<float>(arrived.payloads[p], 4 * (first + i));
    });
    if (!all_finite(mean)) throw InputError("onebit-adam: a payload is not finite");
  }

  float keep_, take_;
  std::uint64_t freeze_step_, step_ = 0;
  std::vector<float> momentum_, local_;
  std::unique_ptr<Codec> signs_;
};

class OneBitAdam : public Compressor {
 public:
  explicit OneBitAdam(const Options& options) : options_(options) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    std::vector<Round> rounds = one_round_if_smaller(
        shape, {.combine = Combine::gather, .bytes = bytes_of(format(), shape)});
    if (!rounds.empty() && options_.freeze_step > 0) {
      rounds[0].bytes = 4 * shape.elements;
      rounds[0].is_bound = true;
    }
    return rounds;
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<OneBitAdamCodec>(options_, shape);
  }
  Momentum momentum() const override { return Momentum::adams; }
  Residual residual() const override { return Residual::needed; }
  std::int64_t remembered_bytes(const Shape& shape) const override { return 4 * shape.elements; }

 private:
  Options options_;
};

std::unique_ptr<const Compressor> make(doc::OptionReader& reader) {
  Options options;
  options.beta = reader.number("beta").value_or(0.9);
  if (!(options.beta >= 0 && options.beta < 1))
    reader.fail("beta", fmt::format("expected 0 to below 1, found {}", options.beta));
  options.freeze_step = reader.integer("freeze_step", 0);
  if (options.freeze_step < 0)
    reader.fail("freeze_step", fmt::format("expected steps, found {}", options.freeze_step));
  return std::make_unique<OneBitAdam>(options);
}

}  // namespace

CompressorLine compressor_onebit_adam() {
  return {"onebit-adam", make,
          "Momentum, a bit an element at its root mean square; what is not sent is kept.",
          "Tang et al. 2021 (arXiv 2102.02888)"};
}

}  // namespace linerate::compress
