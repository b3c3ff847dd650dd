// Codes on grids, for tensors where they lie (compress/method/formats.hpp, kernel/grid.hpp).
// The payloads are the host's to the bit, except for the deviation of ternary codes, a sum whose
// order is the device's.
//
// A launch costs some microseconds however small a tensor is. So the tensors of a bucket are one
// array, and each operator takes all of them. Each tensor is filled up with zeros to whole rows of
// 4,096 elements. A row is a block of random numbers, and also a whole number of grids.
//
// Example: qsgd with grids of 128 elements, and three tensors of 300, 5,000 and 10 elements. They
// begin at the rows 0, 1 and 3 of an array of four rows, which has 128 grids. One operator finds
// all 128 norms. The first tensor sends the first 3 of them, the second 40 from number 32 on, and
// the third the one at number 96.
#include <algorithm>
#include <limits>

#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/bucket_arrays.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

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

/// f64[tensors]: the sum of each tensor. Rows are summed first, then the rows of a tensor. For that
/// each tensor is filled up to as many rows as the largest has.
at::Tensor sums_of(const Padded& rows, const at::Tensor& x) {
  const at::Tensor of_rows = x.view({-1, kRow}).sum(1);
  const std::int64_t most = rows.most_rows();
  const at::Tensor zeros = at::zeros({most}, of_rows.options());
  std::vector<at::Tensor> all;
  for (const at::Tensor& own : of_rows.split_with_sizes(rows.row_counts())) {
    all.push_back(own);
    all.push_back(zeros.narrow(0, 0, most - own.numel()));
  }
  return at::cat(all).view({-1, most}).sum(1);
}

/// Heads of ternary codes, f32[tensors]: the largest magnitude, clipped at so many standard
/// deviations. Sums are in f64, and their order is the device's.
at::Tensor deviations_of(const Padded& rows, const at::Tensor& x, double clip) {
  const at::Tensor largest =
      at::stack(at::_foreach_norm(rows.parts_of(x), std::numeric_limits<double>::infinity()));
  if (!(clip > 0)) return largest;
  const auto sizes =
      mapped(rows.sizes(), [](std::int64_t n) { return at::Scalar(static_cast<double>(n)); });
  const at::Tensor wide = x.to(at::kDouble), n = listed(sizes, wide.options());
  const at::Tensor mean = sums_of(rows, wide) / n;
  const at::Tensor squares = sums_of(rows, wide.square());
  const at::Tensor variance = (squares / n - mean * mean).clamp_min(0);
  return at::minimum(largest, rounded_up(variance.sqrt() * clip));
}

at::Tensor swap_ternary(const at::Tensor& packed) {
  return at::bitwise_xor(packed, at::bitwise_right_shift(packed, 1).bitwise_and_(0x55));
}

/// A bucket's tensors on their grids. Elements that fill up have code 0.
class TensorGrids {
 public:
  template <class Tensors>
  TensorGrids(const GridFormat& format, const Tensors& tensors, const at::TensorOptions& options)
      : format_(format), rows_(Padded::of(tensors, kRow)), filled_(rows_.is_filled(options)) {}

  /// The numbers of each grid, f64[grids][1].
  struct Grids {
    at::Tensor base, unit;
  };

  const Padded& rows() const { return rows_; }
  std::int64_t heads_bytes(std::size_t t) const {
    return compress::heads_bytes(format_, rows_.places[t].elements);
  }
  std::int64_t bytes(std::size_t t) const {
    return compress::bytes_of(format_, rows_.places[t].elements);
  }

  /// The heads of each grid, f32[grids][head_size], or of each tensor. The elements that fill up
  /// must not count. They are zeros, which change no norm. For the ends of a range they are
  /// replaced by infinities.
  at::Tensor heads_of(const at::Tensor& x) const {
    if (format_.rule == HeadRule::deviation)
      return deviations_of(rows_, x, format_.clip).unsqueeze(1);
    if (format_.rule == HeadRule::norm) {
      const at::Tensor squares = in_grids(x).to(at::kDouble).square();
      return rounded_up(sums_of_16_lanes(squares).sqrt()).unsqueeze(1);
    }
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const at::Tensor row = x.view({-1, kRow});
    const at::Tensor least = in_grids(at::where(filled_, row, infinity)).amin(1) + 0.0f;
    const at::Tensor largest = in_grids(at::where(filled_, row, -infinity)).amax(1) + 0.0f;
    const at::Tensor width = largest.to(at::kDouble) - least.to(at::kDouble);
    const at::Tensor top = at::full({}, double(format_.top), width.options());
    return at::stack({least, rounded_up(width / top)}, 1);
  }

  /// The grids that the heads describe. A tensor with one grid for all has one unit, which is given
  /// to each of its rows.
  Grids grids_of(const at::Tensor& heads) const {
    const at::Tensor first = heads.select(1, 0).to(at::kDouble);
    if (format_.rule == HeadRule::ends)
      return {first.unsqueeze(1), heads.narrow(1, 1, 1).to(at::kDouble)};
    const at::Tensor zero = at::zeros({}, first.options());
    if (format_.rule == HeadRule::deviation) return {zero, rows_.by_row(first)};
    return {zero, first.unsqueeze(1) / at::full({}, double(format_.top), first.options())};
  }

  /// u8[elements]: codes in the lowest bits of the format.
  at::Tensor codes_of(const at::Tensor& x, const Grids& grids, const at::Tensor& random) const {
    const at::Tensor one = at::ones({}, grids.unit.options());
    const at::Tensor inverse = at::where(grids.unit > 0, one / grids.unit, 0);
    const at::Tensor wide = in_grids(x).to(at::kDouble);
    const at::Tensor distance = format_.is_signed ? wide.abs() : wide - grids.base;
    const at::Tensor t = (distance * inverse).to(at::kFloat).view({-1}).clamp_max(format_.top);
    const at::Tensor level = rounded(t, random).clamp_max(format_.top);
    if (!format_.is_signed) return level.to(at::kByte).mul_(filled_.view({-1}));
    const at::Tensor code = at::where(x < 0, -level, level).to(at::kInt);
    return code.bitwise_and_((1 << format_.bits) - 1).to(at::kByte);
  }

  /// f32[elements] of such codes.
  at::Tensor points_of(const at::Tensor& codes, const Grids& grids) const {
    const at::Tensor code = in_grids(with_sign(codes)).to(at::kDouble);
    return (grids.base + code * grids.unit).to(at::kFloat).view({-1});
  }

  at::Tensor packed(const at::Tensor& codes) const {
    const at::Tensor all = pack_codes(codes, format_.bits);
    return format_.ternary ? swap_ternary(all) : all;
  }
  at::Tensor unpacked(const at::Tensor& packed) const {
    return unpack_codes(format_.ternary ? swap_ternary(packed) : packed, rows_.elements,
                        format_.bits);
  }
  /// Whether there are codes that stand for no point, or any after a tensor's last element.
  at::Tensor has_other_codes(const at::Tensor& codes) const {
    const at::Tensor behind = filled_.view({-1}) < codes.to(at::kBool);
    if (!format_.is_signed) return behind.any();
    return at::bitwise_or(behind, codes == (1 << (format_.bits - 1))).any();
  }

  at::Tensor has_other_grids(const Grids& grids) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const at::Tensor is_sane = at::bitwise_and(grids.unit >= 0, grids.unit < infinity);
    if (format_.rule == HeadRule::ends) is_sane.bitwise_and_(grids.base.abs() < infinity);
    return is_sane.all().logical_not_();
  }

  /// Views of each tensor's heads, and of each tensor's codes.
  std::vector<at::Tensor> heads_in(const at::Tensor& heads) const {
    const at::Tensor bytes = bytes_of(heads);
    const std::int64_t a_grid = 4 * static_cast<std::int64_t>(format_.head_size);
    std::vector<at::Tensor> all;
    for (std::size_t t = 0; t < rows_.places.size(); ++t) {
      const std::int64_t before =
          format_.bucket ? rows_.places[t].first / grid() : static_cast<std::int64_t>(t);
      all.push_back(bytes.narrow(0, before * a_grid, heads_bytes(t)));
    }
    return all;
  }
  std::vector<at::Tensor> codes_in(const at::Tensor& packed) const {
    return rows_.codes_of_each(packed, format_.bits);
  }
  at::Tensor room_of_heads(const at::TensorOptions& options) const {
    const std::int64_t all =
        format_.bucket ? rows_.elements / grid() : static_cast<std::int64_t>(rows_.places.size());
    return at::zeros({all, static_cast<std::int64_t>(format_.head_size)}, options);
  }
  at::Tensor room_of_codes(const at::TensorOptions& options) const {
    return at::zeros({rows_.elements * format_.bits / 8}, options.dtype(at::kByte));
  }

 private:
  /// The elements of a grid. A tensor that is one grid is worked on row by row.
  std::int64_t grid() const {
    return format_.bucket ? static_cast<std::int64_t>(format_.bucket) : kRow;
  }
  at::Tensor in_grids(const at::Tensor& x) const { return x.view({-1, grid()}); }

  at::Tensor rounded(const at::Tensor& t, const at::Tensor& random) const {
    const at::Tensor floor = t.floor(), fraction = t - floor;
    if (!format_.is_stochastic) return floor + (fraction >= 0.5f).to(at::kFloat);
    const at::Tensor bits = shifted_right(random.view({-1}), 8);
    return floor + (bits.to(at::kFloat) * 0x1p-24f < fraction).to(at::kFloat);
  }

  /// Two's complement of few bits to i32: with 4 bits, code 15 becomes (15 xor 8) - 8 = -1.
  at::Tensor with_sign(const at::Tensor& codes) const {
    if (!format_.is_signed) return codes;
    const std::int64_t half = std::int64_t{1} << (format_.bits - 1);
    return at::bitwise_xor(codes.to(at::kInt), half) - half;
  }

  const GridFormat& format_;
  Padded rows_;
  at::Tensor filled_;  // bool[rows][kRow]
};

}  // namespace

/// The steps of the host's GridCoder, each for the whole bucket: correct, heads, grids, codes,
/// pack, copy to the payloads, subtract from the residual.
void TensorOps::send(const Sending& tensors, const GridFormat& format) {
  const Values v = corrected(tensors);
  const TensorGrids coder(format, v, tensors.values.options());
  const at::Tensor x = coder.rows().array(v), heads = coder.heads_of(x);
  const TensorGrids::Grids grids = coder.grids_of(heads);
  const at::Tensor random =
      format.is_stochastic ? rounding_bits(tensors, coder.rows()) : at::Tensor();
  const at::Tensor codes = coder.codes_of(x, grids, random);
  const std::vector<at::Tensor> sent_heads = coder.heads_in(heads),
                                sent_codes = coder.codes_in(coder.packed(codes));
  std::vector<std::int64_t> begins(v.size(), 0);
  at::_foreach_copy_(sections(tensors.payloads, begins, sent_heads), sent_heads);
  for (std::size_t t = 0; t < v.size(); ++t) begins[t] = coder.heads_bytes(t);
  at::_foreach_copy_(sections(tensors.payloads, begins, sent_codes), sent_codes);
  if (tensors.keeps_residual())
    at::_foreach_sub_(v, coder.rows().parts_of(coder.points_of(codes, grids)));
}

void TensorOps::receive(const Arriving& tensors, const GridFormat& format) {
  const TensorGrids coder(format, tensors.places, tensors.means.options());
  check_all_gathered(tensors, format.method, [&](std::size_t t) { return coder.bytes(t); });
  std::vector<std::int64_t> begins;
  for (std::size_t t = 0; t < tensors.arrived.size(); ++t) begins.push_back(coder.heads_bytes(t));
  set_average(tensors, coder.rows(), [&](const Values& payloads, std::size_t) {
    const at::Tensor heads = coder.room_of_heads(tensors.means.options()),
                     packed = coder.room_of_codes(tensors.means.options());
    const Values to_heads = coder.heads_in(heads), to_codes = coder.codes_in(packed);
    at::_foreach_copy_(to_heads,
                       sections(payloads, std::vector<std::int64_t>(begins.size(), 0), to_heads));
    at::_foreach_copy_(to_codes, sections(payloads, begins, to_codes));
    const TensorGrids::Grids grids = coder.grids_of(heads);
    const at::Tensor codes = coder.unpacked(packed);
    tensors.note_damage(coder.has_other_grids(grids));
    tensors.note_damage(coder.has_other_codes(codes));
    return coder.points_of(codes, grids);
  });
}

}  // namespace linerate::torch_codecs
