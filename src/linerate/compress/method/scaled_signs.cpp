#include "linerate/compress/method/scaled_signs.hpp"

#include <cmath>

#include "linerate/compress/kernel/signs.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

SignSum sum_of(LevelRule rule) {
  switch (rule) {
    case LevelRule::mean_magnitude:
      return SignSum::magnitudes;
    case LevelRule::root_mean_square:
      return SignSum::squares;
    case LevelRule::mean_of_class:
      break;
  }
  return SignSum::classes;
}

float mean_of(double sum, std::int64_t count) {
  return count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f;
}

SignLevels levels_of(LevelRule rule, const SignSums& sums, std::size_t n) {
  const auto count = static_cast<std::int64_t>(n);
  if (rule == LevelRule::mean_of_class)
    return {mean_of(sums.first, count - sums.negatives), mean_of(sums.second, sums.negatives)};
  const float level = rule == LevelRule::mean_magnitude
                          ? mean_of(sums.first, count)
                          : static_cast<float>(std::sqrt(sums.first / static_cast<double>(n)));
  return {level, -level};
}

std::int64_t block_of(const SignFormat& format, const Shape& shape) {
  return format.block > 0 ? format.block : shape.elements;
}
std::int64_t level_bytes(const SignFormat& format, const Shape& shape) {
  if (shape.elements == 0) return 0;
  return 4 * levels_per_block(format.rule) * ceil_div(shape.elements, block_of(format, shape));
}

class ScaledSignCodec : public Codec {
 public:
  ScaledSignCodec(const SignFormat& format, const Shape& shape)
      : format_(format),
        n_(to_index(shape.elements)),
        block_(to_index(block_of(format, shape))),
        words_at_(to_index(level_bytes(format, shape))),
        bytes_(to_index(bytes_of(format, shape))) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    for (std::size_t first = 0; first < n_; first += block_) {
      const std::size_t count = std::min(block_, n_ - first);
      const auto gradient = input.gradient.subspan(first, count);
      std::byte* words = payload.data() + words_at_ + first / 8;
      if (input.residual.empty()) {
        const SignSums sums = pack_signs(gradient, sum_of(format_.rule), words);
        write_levels(first, levels_of(format_.rule, sums, count), payload);
      } else {
        const auto residual = input.residual.subspan(first, count);
        const SignSums sums = add_and_pack_signs(gradient, residual, sum_of(format_.rule), words);
        const SignLevels levels = levels_of(format_.rule, sums, count);
        write_levels(first, levels, payload);
        subtract_signs(words, levels, residual);
      }
    }
    return bytes_;
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_gathered(arrived, bytes_, format_.method);
    for (std::size_t p = 0; p < arrived.payloads.size(); ++p) check(arrived.payloads[p], p);
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      const std::span<const std::byte> payload = arrived.payloads[p];
      while (!out.empty()) {  // the part of a block that lies in here
        const std::size_t count = std::min(out.size(), block_ - first % block_);
        add_signs(payload.data() + words_at_ + first / 8, read_levels(first, payload),
                  out.first(count));
        first += count;
        out = out.subspan(count);
      }
    });
  }

 private:
  std::size_t level_at(std::size_t element) const {
    return element / block_ * 4 * to_index(levels_per_block(format_.rule));
  }
  void write_levels(std::size_t first, SignLevels levels, std::span<std::byte> payload) const {
    write_at(payload, level_at(first), levels.positive);
    if (format_.rule == LevelRule::mean_of_class)
      write_at(payload, level_at(first) + 4, levels.negative);
  }
  SignLevels read_levels(std::size_t element, std::span<const std::byte> payload) const {
    const auto positive = read_at<float>(payload, level_at(element));
    if (format_.rule != LevelRule::mean_of_class) return {positive, -positive};
    return {positive, read_at<float>(payload, level_at(element) + 4)};
  }
  void check(std::span<const std::byte> payload, std::size_t p) const {
    for (std::size_t first = 0; first < n_; first += block_) {
      const SignLevels levels = read_levels(first, payload);
      const bool ordered = levels.positive >= 0 && levels.negative <= 0;
      if (!ordered || !std::isfinite(levels.positive) || !std::isfinite(levels.negative))
        refuse_payload(format_.method, p, "a level that no block has");
    }
    if (!has_clean_tail(payload.data() + words_at_, n_))
      refuse_payload(format_.method, p, "bits after the last element");
  }

  SignFormat format_;
  std::size_t n_, block_, words_at_, bytes_;
};

class ScaledSigns : public Compressor {
 public:
  explicit ScaledSigns(const SignFormat& format) : format_(format) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape,
                                {.combine = Combine::gather, .bytes = bytes_of(format_, shape)});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return scaled_sign_codec(format_, shape);
  }
  Residual residual() const override { return Residual::needed; }

 private:
  SignFormat format_;
};

}  // namespace

std::int64_t bytes_of(const SignFormat& format, const Shape& shape) {
  return level_bytes(format, shape) + 4 * ceil_div(shape.elements, 32);
}

std::unique_ptr<Codec> scaled_sign_codec(const SignFormat& format, const Shape& shape) {
  return std::make_unique<ScaledSignCodec>(format, shape);
}

std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format) {
  return std::make_unique<ScaledSigns>(format);
}

}  // namespace linerate::compress
