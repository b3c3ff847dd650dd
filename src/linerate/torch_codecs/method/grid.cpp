// qsgd, maxmin and terngrad over tensors (compress/method/grid_codes.hpp, kernel/grid.hpp).
#include <cmath>
#include <limits>

#include "linerate/compress/method/grid_codes.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::GridFormat;
using compress::HeadRule;

/// compress::round_up(): f64 to the f32 at or above.
at::Tensor rounded_up(const at::Tensor& value) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const at::Tensor cut = value.clamp_max(double{kLargest});
  const at::Tensor nearest = cut.to(at::kFloat);
  const at::Tensor above = at::nextafter(nearest, at::full({}, kLargest, nearest.options()));
  return at::where(nearest.to(at::kDouble) < cut, above, nearest);
}

class GridTensors : public TensorCodec {
 public:
  GridTensors(const Making& making, GridFormat format)
      : TensorCodec(making),
        format_(std::move(format)),
        bucket_(format_.bucket ? static_cast<std::int64_t>(format_.bucket) : elements()),
        buckets_(compress::buckets_of(format_, elements())),
        codes_at_(compress::heads_bytes(format_, elements())),
        code_bytes_(compress::ceil_div(elements() * format_.bits, 8)) {}

 private:
  /// Of each bucket, f64[buckets][1].
  struct Grids {
    at::Tensor base, unit;
  };

  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input);
    const at::Tensor heads = heads_of(v);
    const Grids grids = grids_of(heads);
    const at::Tensor codes = codes_of(v, grids, input.keys.own);
    if (input.residual.defined()) keep_residual(input, v - points_of(codes, grids));
    const at::Tensor mask = at::bitwise_and(codes.to(at::kInt), (1 << format_.bits) - 1);
    at::Tensor packed = pack_codes(mask.to(at::kByte), format_.bits);
    if (format_.ternary) packed = swap_ternary(packed);
    return {joined({heads, packed}, round_at(0).bytes), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_gathered(arrived, round_at(0).bytes, format_.method);
    average(arrived, mean, [&](std::size_t p) {
      const at::Tensor& payload = arrived.payloads[p];
      const Grids grids = grids_of(section(payload, 0, codes_at_, at::kFloat).view({buckets_, -1}));
      damage_if(at::isfinite(grids.base).bitwise_and(at::isfinite(grids.unit)).all().bitwise_not());
      damage_if((grids.unit < 0).any());
      return points_of(read_codes(payload), grids);
    });
  }

  /// f32[n] in buckets, the last one filled up with `fill`.
  at::Tensor in_buckets(const at::Tensor& x, double fill = 0) const {
    return at::constant_pad_nd(x, {0, buckets_ * bucket_ - elements()}, fill)
        .view({buckets_, bucket_});
  }
  at::Tensor flat(const at::Tensor& x) const { return x.view({-1}).narrow(0, 0, elements()); }

  /// What is sent of each bucket: f32[buckets][head_size].
  at::Tensor heads_of(const at::Tensor& v) const {
    if (format_.rule == HeadRule::norm) {
      const at::Tensor squares = in_buckets(v).to(at::kDouble).square();
      return rounded_up(sums_of_16_lanes(squares).sqrt()).unsqueeze(1);
    }
    if (format_.rule == HeadRule::ends) {
      constexpr double infinity = std::numeric_limits<double>::infinity();
      const at::Tensor least = in_buckets(v, infinity).amin(1) + 0.0f;
      const at::Tensor largest = in_buckets(v, -infinity).amax(1) + 0.0f;
      const at::Tensor width = largest.to(at::kDouble) - least.to(at::kDouble);
      const at::Tensor top = at::full({}, double(format_.top), width.options());
      return at::stack({least, rounded_up(width / top)}, 1);
    }
    const at::Tensor largest = v.abs().amax();
    if (!(format_.clip > 0)) return largest.view({1, 1});
    const at::Tensor wide = v.to(at::kDouble);
    const at::Tensor n = at::full({}, double(elements()), wide.options());
    const at::Tensor mean = wide.sum() / n;
    const at::Tensor variance = (wide.square().sum() / n - mean * mean).clamp_min(0);
    return at::minimum(largest, rounded_up(variance.sqrt() * format_.clip)).view({1, 1});
  }

  Grids grids_of(const at::Tensor& heads) const {
    const at::Tensor first = heads.narrow(1, 0, 1).to(at::kDouble);
    if (format_.rule == HeadRule::ends) return {first, heads.narrow(1, 1, 1).to(at::kDouble)};
    const at::Tensor zero = at::zeros_like(first);
    if (format_.rule == HeadRule::deviation) return {zero, first};
    return {zero, first / at::full({}, double(format_.top), first.options())};
  }

  /// i8 codes, or u8 ones of a grid that is not signed.
  at::Tensor codes_of(const at::Tensor& v, const Grids& grids, std::uint64_t key) const {
    const at::Tensor one = at::ones({}, grids.unit.options());
    const at::Tensor inverse = at::where(grids.unit > 0, one / grids.unit, 0);
    const at::Tensor wide = in_buckets(v).to(at::kDouble);
    const at::Tensor distance = format_.is_signed ? wide.abs() : wide - grids.base;
    const at::Tensor t = flat((distance * inverse).to(at::kFloat)).clamp_max(format_.top);
    const at::Tensor level = rounded(t, key).clamp_max(format_.top);
    if (!format_.is_signed) return level.to(at::kByte);
    return at::where(v < 0, -level, level).to(at::kChar);
  }

  at::Tensor rounded(const at::Tensor& t, std::uint64_t key) const {
    const at::Tensor floor = t.floor(), fraction = t - floor;
    if (!format_.is_stochastic) return floor + (fraction >= 0.5f).to(at::kFloat);
    const at::Tensor bits = shifted_right(rounding_bits(key, elements(), device()), 8);
    return floor + (bits.to(at::kFloat) * 0x1p-24f < fraction).to(at::kFloat);
  }

  at::Tensor points_of(const at::Tensor& codes, const Grids& grids) const {
    const at::Tensor code = at::constant_pad_nd(codes, {0, buckets_ * bucket_ - elements()})
                                .view({buckets_, bucket_})
                                .to(at::kDouble);
    return flat((grids.base + code * grids.unit).to(at::kFloat));
  }

  static at::Tensor swap_ternary(const at::Tensor& packed) {
    return at::bitwise_xor(packed, at::bitwise_right_shift(packed, 1).bitwise_and_(0x55));
  }

  at::Tensor read_codes(const at::Tensor& payload) {
    const std::int64_t room = round_at(0).bytes - codes_at_;
    const at::Tensor behind = section(payload, codes_at_, room);
    damage_if((behind.narrow(0, code_bytes_, room - code_bytes_) != 0).any());
    at::Tensor packed = behind.narrow(0, 0, code_bytes_);
    const auto used = static_cast<int>(elements() * format_.bits % 8);
    if (used != 0)
      damage_if((at::bitwise_right_shift(packed.narrow(0, code_bytes_ - 1, 1), used) != 0).any());
    if (format_.ternary) packed = swap_ternary(packed);
    const at::Tensor codes = unpack_codes(packed, elements(), format_.bits);
    if (!format_.is_signed) return codes;
    const std::int64_t half = std::int64_t{1} << (format_.bits - 1);
    const at::Tensor wide = codes.to(at::kInt);
    const at::Tensor with_sign = at::bitwise_xor(wide, half) - half;  // of so many bits
    damage_if((with_sign < -format_.top).any());
    return with_sign.to(at::kChar);
  }

  GridFormat format_;
  std::int64_t bucket_, buckets_, codes_at_, code_bytes_;
};

}  // namespace

Made make_qsgd(const Making& making, doc::OptionReader& options) {
  return std::make_unique<GridTensors>(making, compress::qsgd_format(options));
}
Made make_maxmin(const Making& making, doc::OptionReader& options) {
  return std::make_unique<GridTensors>(making, compress::maxmin_format(options));
}
Made make_terngrad(const Making& making, doc::OptionReader& options) {
  return std::make_unique<GridTensors>(making, compress::terngrad_format(options));
}

}  // namespace linerate::torch_codecs
