// signsgd, efsignsgd, onebit and onebit-adam over tensors: a bit an element (kernel/signs.hpp).
#include "linerate/compress/kernel/signs.hpp"
#include "linerate/core/index.hpp"

#include "linerate/compress/method/scaled_signs.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/torch_codecs/method/dense_momentum.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::LevelRule;

std::int64_t word_bytes(std::int64_t n) {
  return static_cast<std::int64_t>(compress::sign_bytes(to_index(n)));
}
at::Tensor pack_signs(const at::Tensor& negative) {
  return joined({pack_codes(negative.to(at::kByte), 1)}, word_bytes(negative.numel()));
}
at::Tensor unpack_signs(const at::Tensor& words, std::int64_t n) {
  return unpack_codes(words, n, 1).to(at::kBool);
}
/// Whether bits after element n are set.
at::Tensor has_more_signs(const at::Tensor& words, std::int64_t n) {
  return unpack_codes(words, 8 * words.numel(), 1).narrow(0, n, 8 * words.numel() - n).any();
}

/// compress::MovingAverage, whose two products and sum are rounded one by one.
at::Tensor moving_average(double beta, const at::Tensor& m, const at::Tensor& x) {
  return m * static_cast<float>(beta) + x * static_cast<float>(1 - beta);
}

class SignSgdTensors : public TensorCodec {
 public:
  SignSgdTensors(const Making& making, double momentum)
      : TensorCodec(making),
        beta_(momentum),
        momentum_(at::zeros({momentum > 0 ? elements() : 0}, options(at::kFloat))) {}

  std::vector<compress::StateField> state() override {
    if (!(beta_ > 0)) return {};
    return {state_field("momentum", compress::Passing::mean, momentum_)};
  }

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    at::Tensor sent = input.gradient;
    if (beta_ > 0) {
      momentum_.write(moving_average(beta_, momentum_.now(), sent));
      sent = momentum_.next();
    }
    return {pack_signs(sent < 0), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_gathered(arrived, word_bytes(elements()), "signsgd");
    at::Tensor negative = at::zeros({elements()}, options(at::kInt));
    for (const at::Tensor& words : arrived.payloads) {
      damage_if(has_more_signs(words, elements()));
      negative.add_(unpack_codes(words, elements(), 1));
    }
    mean.copy_(1 - 2 * (negative > arrived.ranks / 2).to(at::kFloat));
  }

  double beta_;
  KeptTensor momentum_;
};

class SignSgdDenseTensors : public DenseMomentum {
 public:
  SignSgdDenseTensors(const Making& making, double momentum)
      : DenseMomentum(making), beta_(momentum) {}

 private:
  void do_decode(int, const TensorArrived&, const at::Tensor& mean) override {
    momentum_.write(moving_average(beta_, momentum_.now(), mean));
    mean.copy_(momentum_.next());
  }

  double beta_;
};

class ScaledSignTensors : public TensorCodec {
 public:
  ScaledSignTensors(const Making& making, compress::SignFormat format)
      : TensorCodec(making),
        format_(std::move(format)),
        block_(format_.block > 0 ? format_.block : elements()),
        blocks_(compress::ceil_div(elements(), block_)),
        words_at_(4 * compress::levels_per_block(format_.rule) * blocks_),
        bytes_(compress::bytes_of(format_, shape())) {
    counts_ = in_blocks(at::ones({elements()}, options(at::kDouble))).sum(1);
  }

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input), negative = v < 0;
    const at::Tensor levels = levels_of(in_blocks(v), in_blocks(negative));
    if (input.residual.defined()) keep_residual(input, v - values_of(levels, negative));
    return {joined({levels, pack_signs(negative)}, bytes_), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_gathered(arrived, bytes_, format_.method);
    average(arrived, mean, [&](std::size_t p) {
      const at::Tensor& payload = arrived.payloads[p];
      const at::Tensor words = section(payload, words_at_, bytes_ - words_at_);
      const at::Tensor levels = section(payload, 0, words_at_, at::kFloat)
                                    .view({blocks_, compress::levels_per_block(format_.rule)});
      const at::Tensor sane =
          at::bitwise_and(levels.select(1, 0) >= 0, format_.rule == LevelRule::mean_of_class
                                                        ? levels.select(1, 1) <= 0
                                                        : levels.select(1, 0) >= 0);
      damage_if(at::bitwise_and(sane, at::isfinite(levels).all(1)).bitwise_not().any());
      damage_if(has_more_signs(words, elements()));
      return values_of(levels, unpack_signs(words, elements()));
    });
  }

  /// [blocks][block], filled up with zeros.
  at::Tensor in_blocks(const at::Tensor& x) const {
    return at::constant_pad_nd(x, {0, blocks_ * block_ - elements()}).view({blocks_, block_});
  }

  /// f32[blocks][levels]. Sums in f64, whose order is the device's.
  at::Tensor levels_of(const at::Tensor& v, const at::Tensor& negative) const {
    if (format_.rule == LevelRule::mean_of_class) {
      const at::Tensor negatives = negative.sum(1).to(at::kDouble);
      return at::stack({mean_of(v.clamp_min(0).sum(1, false, at::kDouble), counts_ - negatives),
                        mean_of(v.clamp_max(0).sum(1, false, at::kDouble), negatives)},
                       1);
    }
    if (format_.rule == LevelRule::mean_magnitude)
      return mean_of(v.abs().sum(1, false, at::kDouble), counts_).unsqueeze(1);
    const at::Tensor squares = v.to(at::kDouble).square().sum(1);
    return (squares / counts_).sqrt().to(at::kFloat).unsqueeze(1);
  }
  static at::Tensor mean_of(const at::Tensor& sum, const at::Tensor& count) {
    return at::where(count > 0, sum / count.clamp_min(1), 0).to(at::kFloat);
  }

  at::Tensor values_of(const at::Tensor& levels, const at::Tensor& negative) const {
    const at::Tensor positive = levels.narrow(1, 0, 1);
    const at::Tensor below =
        format_.rule == LevelRule::mean_of_class ? levels.narrow(1, 1, 1) : -positive;
    return at::where(in_blocks(negative), below, positive).view({-1}).narrow(0, 0, elements());
  }

  compress::SignFormat format_;
  std::int64_t block_, blocks_, words_at_, bytes_;
  at::Tensor counts_;  // elements of each block
};

class OneBitAdamTensors : public TensorCodec {
 public:
  OneBitAdamTensors(const Making& making, const compress::OneBitAdamSettings& settings)
      : TensorCodec(making),
        settings_(settings),
        momentum_(at::zeros({elements()}, options(at::kFloat))),
        signs_(making, compress::onebit_adam_format()) {}

  std::vector<compress::StateField> state() override {
    return {state_field("momentum", compress::Passing::same, momentum_)};
  }

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    is_dense_ = settings_.freeze_step > 0 && input.phase == 0;
    if (is_dense_) {  // with all that another method may have left
      const at::Tensor v = corrected(input).clone();
      keep_residual(input, at::zeros_like(v));
      return {bytes_of(v), {}};
    }
    const at::Tensor own = moving_average(settings_.beta, momentum_.now(), input.gradient);
    return signs_.encode(0, {own, input.residual, input.keys, input.ranks});
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    if (is_dense_) {
      mean.copy_(read_mean(arrived, elements(), "onebit-adam"));
      damage_if(at::isfinite(mean).all().bitwise_not());
      momentum_.write(moving_average(settings_.beta, momentum_.now(), mean));
    } else {
      signs_.decode(0, arrived, mean);
      damage_if(signs_.damaged());
      momentum_.write(mean.clone());
    }
  }

  compress::OneBitAdamSettings settings_;
  bool is_dense_ = false;  // in the step at hand
  KeptTensor momentum_;
  ScaledSignTensors signs_;
};

}  // namespace

Made make_signsgd(const Making& making, doc::OptionReader& options) {
  return std::make_unique<SignSgdTensors>(making, compress::read_signsgd_momentum(options));
}
Made make_signsgd_dense(const Making& making, doc::OptionReader& options) {
  const double momentum = compress::read_signsgd_momentum(options);
  if (!(momentum > 0)) return nullptr;
  return std::make_unique<SignSgdDenseTensors>(making, momentum);
}
Made make_efsignsgd(const Making& making, doc::OptionReader&) {
  return std::make_unique<ScaledSignTensors>(making, compress::efsignsgd_format());
}
Made make_onebit(const Making& making, doc::OptionReader& options) {
  return std::make_unique<ScaledSignTensors>(making, compress::onebit_format(options));
}
Made make_onebit_adam(const Making& making, doc::OptionReader& options) {
  return std::make_unique<OneBitAdamTensors>(making, compress::read_onebit_adam(options));
}

}  // namespace linerate::torch_codecs
