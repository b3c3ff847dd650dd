// Factors for powersgd and acpsgd, for tensors where they lie. The factors of all matrices are one
// array, f32[tensors][rank][longest]. Vectors are filled up with zeros, which change no product of
// vectors. So one operator makes all factors of a bucket orthonormal. The matrices themselves have
// different shapes. Those of one shape lie one after the other in `order_`, and one operator
// multiplies a group of them.
//
// Example: a bucket with matrices of 64 x 32, 10 x 64 and 64 x 32 elements. `order_` is 1, 0, 2,
// because shapes ascend. There are two groups: 10 x 64 from place 0, and twice 64 x 32 from place
// 1. A product takes two operators instead of three. To make the factors orthonormal takes as many
// operators as for one matrix.
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/torch_codecs/bucket_arrays.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::FactorSize;
using compress::Side;

constexpr double kEndless = std::numeric_limits<double>::infinity();

std::int64_t length_of(const FactorSize& size, Side side) {
  return side == Side::left ? size.rows : size.columns;
}

/// Makes numbers beyond the range of f32 the largest number there is.
void saturate(const std::vector<at::Tensor>& values) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  at::_foreach_clamp_min_(values, -kLargest);
  at::_foreach_clamp_max_(values, kLargest);
}

at::Tensor norm_of(const at::Tensor& vectors) {
  return at::linalg_vector_norm(vectors, 2, at::IntArrayRef{2}, true);
}

/// A number where `like` is: an operator that is given one of the host makes one each time.
at::Tensor number(double value, const at::Tensor& like) {
  return at::full({}, value, like.options());
}

/// Subtracts from a vector its parts along those before it, twice, in f64. Then scales it to length
/// 1. If no more than `least` is left of it, it becomes zero, also if `least` is a NaN or an
/// infinity. This is classical Gram-Schmidt, in place of the modified one on the host. It takes as
/// many products as there are vectors, not their square.
struct Freed {
  at::Tensor vector, is_there;  // f64[tensors][1][n], bool[tensors][1][1]
};
Freed freed(at::Tensor vector, const at::Tensor& before, const at::Tensor& least,
            const at::Tensor& zero) {
  if (before.size(1) > 0)
    for (int pass = 0; pass < 2; ++pass)
      vector = at::baddbmm(vector, at::bmm(vector, before.transpose(1, 2)), before, 1, -1);
  const at::Tensor norm = norm_of(vector), is_there = norm > least;
  return {at::where(is_there, vector / norm, zero), is_there};
}

/// compress::orthonormalise() of f32[tensors][rank][n], with which vectors vanished. If `fresh` is
/// given, such a vector is replaced by its random one. orthonormalise_fresh() on the host makes up
/// to eight trials. Here there is one, because a random vector is almost never among the others.
std::pair<at::Tensor, at::Tensor> orthonormal(const at::Tensor& factors, const at::Tensor& fresh) {
  std::vector<at::Tensor> there;
  const at::Tensor vectors = factors.to(at::kDouble), zero = number(0, vectors);
  const at::Tensor least =
      at::linalg_vector_norm(vectors, 2, at::IntArrayRef{1, 2}, true) * compress::kVanished;
  const at::Tensor least_fresh = fresh.defined() ? number(compress::kVanished, vectors) : fresh;
  for (std::int64_t j = 0; j < vectors.size(1); ++j) {
    const at::Tensor before = vectors.narrow(1, 0, j), own = vectors.narrow(1, j, 1);
    Freed found = freed(own, before, least, zero);
    there.push_back(found.is_there);
    if (fresh.defined())
      found.vector = at::where(found.is_there, found.vector,
                               freed(fresh.narrow(1, j, 1), before, least_fresh, zero).vector);
    own.copy_(found.vector);
  }
  return {vectors.to(at::kFloat), at::cat(there, 1).logical_not_()};
}

}  // namespace

/// The tensors of all groups, one by one, flat.
std::vector<at::Tensor> TensorOps::LowRank::each_of(const std::vector<at::Tensor>& by_group) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& group : by_group)
    for (const at::Tensor& one : group.unbind(0)) all.push_back(one.reshape({-1}));
  return all;
}

/// Sorts the matrices by shape. The sort is stable, so equal buckets have equal orders on all
/// ranks.
void TensorOps::LowRank::begin(OfAll<FactorSize> sizes) {
  const auto shape_of = [&](std::size_t t) {
    return std::tuple(sizes[t]->rows, sizes[t]->columns);
  };
  order_.resize(sizes.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::size_t a, std::size_t b) { return shape_of(a) < shape_of(b); });
  groups_.clear();
  for (std::size_t k = 0; k < order_.size(); ++k) {
    if (k == 0 || shape_of(order_[k]) != shape_of(order_[k - 1]))
      groups_.push_back({*sizes[order_[k]], static_cast<std::int64_t>(k), 0, {}});
    ++groups_.back().count;
  }
}

/// The last group that begins at k or before it.
const TensorOps::LowRank::Group& TensorOps::LowRank::group_of(std::int64_t k) const {
  const auto behind = std::find_if(groups_.begin(), groups_.end(),
                                   [&](const Group& group) { return k < group.first; });
  return *(behind - 1);
}

/// The array of all factors of one side. `factors` has each tensor's vectors, [rank][length] or
/// flat, in the order of the groups.
at::Tensor TensorOps::LowRank::joined(Side side, const std::vector<at::Tensor>& factors) const {
  std::int64_t longest = 0;
  for (const Group& group : groups_) longest = std::max(longest, length_of(group.size, side));
  const at::Tensor zeros = at::zeros({longest}, factors.front().options());
  std::vector<at::Tensor> all;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    const std::int64_t length = length_of(group_of(static_cast<std::int64_t>(k)).size, side);
    for (const at::Tensor& vector : factors[k].reshape({rank(), length}).unbind(0)) {
      all.push_back(vector);
      if (length < longest) all.push_back(zeros.narrow(0, 0, longest - length));
    }
  }
  return at::cat(all).view({-1, rank(), longest});
}

/// f32[count][rank][length] of a group.
at::Tensor TensorOps::LowRank::of_group(const Group& group, Side side) const {
  return factor_[side]
      .narrow(0, group.first, group.count)
      .narrow(2, 0, length_of(group.size, side));
}

void TensorOps::LowRank::take(Side side, OfAll<KeptValues> kept) {
  factor_[side] = joined(side, mapped(order_, [&](std::size_t t) { return kept[t]->now(); }));
}

void TensorOps::LowRank::leave(Side side, OfAll<KeptValues> kept) {
  for (const Group& group : groups_) {
    const std::vector<at::Tensor> members = of_group(group, side).unbind(0);
    for (std::size_t i = 0; i < members.size(); ++i)
      kept[order_[to_index(group.first) + i]]->write(members[i]);
  }
}

/// fill_random() of each tensor's stream, f64[tensors][vectors][longest]. Elements after a vector's
/// own length are zeros.
at::Tensor TensorOps::LowRank::drawn(Side side, const Sending& tensors,
                                     std::int64_t vectors) const {
  std::vector<at::Scalar> streams, lengths;
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const std::uint64_t key = tensors.keys[order_[k]].shared;
    for (std::uint64_t j = 0; j < to_index(vectors); ++j)
      streams.emplace_back(static_cast<std::int64_t>(linerate::random_key(key, j)));
    lengths.emplace_back(length_of(group_of(static_cast<std::int64_t>(k)).size, side));
  }
  const auto whole = tensors.values.options().dtype(at::kLong);
  const at::Tensor element = at::arange(factor_[side].size(2), whole);
  const at::Tensor unit = random_unit(listed(streams, whole).view({-1, vectors, 1}), element);
  const at::Tensor values = (unit * 2 - 1).to(at::kFloat).to(at::kDouble);
  return at::where(element < listed(lengths, whole).view({-1, 1, 1}), values, number(0, values));
}

/// Draws twice the vectors in one go. The first half stands in for vectors without a length. The
/// second half is for redraw_vanished().
void TensorOps::LowRank::make_unit(Side side, const Sending& tensors) {
  at::Tensor wide = factor_[side].to(at::kDouble);
  const at::Tensor norm = norm_of(wide), all = drawn(side, tensors, 2 * rank());
  wide = at::where(at::bitwise_and(norm > 0, norm < kEndless), wide, all.narrow(1, 0, rank()));
  factor_[side] = (wide / norm_of(wide)).to(at::kFloat);
  fresh_ = all.narrow(1, rank(), rank()).to(at::kFloat);
}

void TensorOps::LowRank::orthonormalise(Side side) {
  std::tie(factor_[side], vanished_) = orthonormal(factor_[side], {});
}
void TensorOps::LowRank::orthonormalise_fresh(Side side, const Sending& tensors) {
  std::tie(factor_[side], vanished_) = orthonormal(factor_[side], drawn(side, tensors, rank()));
}
void TensorOps::LowRank::redraw_vanished(Side side) {
  factor_[side] = at::where(vanished_, fresh_, factor_[side]);
}

/// The matrices of a group as one tensor. A group of one is a view, others are copied together.
void TensorOps::LowRank::make_matrices(const Sending& tensors) {
  const Values parts = corrected(tensors);
  for (Group& group : groups_) {
    std::vector<at::Tensor> members;
    for (std::int64_t k = group.first; k < group.first + group.count; ++k)
      members.push_back(parts[order_[to_index(k)]]);
    group.matrices = (group.count > 1 ? at::stack(members) : members.front())
                         .view({group.count, group.size.rows, group.size.columns});
  }
}

/// As HostOps::LowRank::send(). The fixed factor is scaled down for the product and up for all
/// later ones.
void TensorOps::LowRank::send(const Sending& tensors, const compress::FactorPass& pass) {
  if (pass.adds_residual) make_matrices(tensors);
  at::Tensor& fixed = factor_[other(pass.sent)];
  std::vector<at::Scalar> scales;
  for (const Group& group : groups_)
    scales.insert(
        scales.end(), to_index(group.count),
        compress::headroom(tensors.ranks, to_index(length_of(group.size, other(pass.sent)))));
  const at::Tensor scale = listed(scales, fixed.options()).view({-1, 1, 1});
  const at::Tensor unscaled = std::exchange(fixed, fixed * scale);
  Values sent;
  for (const Group& group : groups_)
    sent.push_back(at::bmm(of_group(group, other(pass.sent)), pass.sent == Side::left
                                                                  ? group.matrices.transpose(1, 2)
                                                                  : group.matrices));
  fixed = unscaled / scale;
  const Values factors = each_of(sent);
  Values payloads;
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const std::int64_t bytes = 4 * factors[k].numel();
    tensors.codecs[order_[k]]->sends(bytes);
    payloads.push_back(tensors.payloads[order_[k]].narrow(0, 0, bytes).view(at::kFloat));
  }
  at::_foreach_copy_(payloads, factors);
  if (pass.keeps_rest) keep_rest(tensors, pass.sent, sent);
}

/// The residual, matrix - left^T right, in the step's own copy.
void TensorOps::LowRank::keep_rest(const Sending& tensors, Side side, const Values& factors) {
  Values rests;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const at::Tensor matrices = std::exchange(groups_[g].matrices, {});
    const at::Tensor fixed = of_group(groups_[g], other(side));
    const at::Tensor &left = side == Side::left ? factors[g] : fixed,
                     &right = side == Side::left ? fixed : factors[g];
    if (tensors.keeps_residual())
      rests.push_back(at::baddbmm(matrices, left.transpose(1, 2), right, 1, -1));
  }
  if (rests.empty()) return;
  const Values parts = parts_of(tensors.next, tensors.places);
  at::_foreach_copy_(in_order(parts), each_of(rests));
  saturate(parts);
}

void TensorOps::LowRank::receive(Side side, const Arriving& tensors, std::string_view method,
                                 compress::Taken taken) {
  Values sums;
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const TensorArrived& arrived = tensors.arrived[order_[k]];
    check_sum(arrived, 4 * rank() * length_of(group_of(static_cast<std::int64_t>(k)).size, side),
              method);
    sums.push_back(arrived.payloads[0].view(at::kFloat));
  }
  factor_[side] = joined(side, sums);
  if (taken == compress::Taken::mean)
    factor_[side].mul_(1.0f / static_cast<float>(tensors.arrived.front().ranks));
}

void TensorOps::LowRank::write_products(const Arriving& tensors) {
  const Values products = mapped(groups_, [&](const Group& group) {
    return at::bmm(of_group(group, Side::left).transpose(1, 2), of_group(group, Side::right));
  });
  const Values parts = parts_of(tensors.means, tensors.places);
  at::_foreach_copy_(in_order(parts), each_of(products));
  saturate(parts);
}

TensorOps::Values TensorOps::LowRank::in_order(const Values& by_tensor) const {
  return mapped(order_, [&](std::size_t t) { return by_tensor[t]; });
}

// Powers of two, for tensors where they lie. Only integers are used, so the bits are the host's
// (compress/kernel/short_floats.cpp, which tells how rounding at random works). The tensors of a
// bucket are one array, and each is filled up to whole rows, which are blocks of random numbers.

namespace {

using compress::PowerFormat;

constexpr std::int64_t kMostExponent = 254;
constexpr std::int64_t kMantissa = 0x7fffff, kLeadingOne = 0x800000;
constexpr std::int64_t kGroup = 32, kGroupBytes = kGroup + kGroup / 8;

at::Tensor power_of(const at::Tensor& exponent, const at::Tensor& negative) {
  const at::Tensor bits = at::bitwise_left_shift(exponent, 23);
  return floats_of(at::where(negative, at::bitwise_or(bits, std::int64_t{-0x80000000LL}), bits));
}
/// The exponent, rounded at random. The lower 23 bits of the magnitude are the probability of the
/// next exponent.
at::Tensor rounded_exponent(const at::Tensor& magnitude, const at::Tensor& random) {
  return at::bitwise_right_shift(magnitude + random, 23).clamp_max(kMostExponent);
}
/// powers.cpp's round_at_the_bottom().
at::Tensor rounded_at_the_bottom(const at::Tensor& magnitude, const at::Tensor& random,
                                 const at::Tensor& least) {
  const at::Tensor exponent = at::bitwise_right_shift(magnitude, 23);
  const at::Tensor mantissa = at::bitwise_and(magnitude, kMantissa);
  const at::Tensor whole = at::where(exponent > 0, at::bitwise_or(mantissa, kLeadingOne), mantissa);
  const at::Tensor down = (least - exponent.clamp_min(1)).clamp(0, 31);
  const at::Tensor part = at::bitwise_right_shift(whole, down);
  return least - 1 + at::bitwise_right_shift(part + random, 23);
}

struct Powers {
  at::Tensor exponent, negative;  // i32, bool: [rows][kRow]
};

/// Pieces of arrays and payloads that are copied to each other. The array has groups of 36 bytes
/// for all tensors, [groups][kGroupBytes]. A tensor's whole groups lie in its payload as they do in
/// the array. A last group of m elements is shorter in the payload: its signs take ceil(m / 8)
/// bytes, and its exponents follow them at once.
///
/// Example: a tensor of 70 elements has 2 whole groups, so 72 bytes are one piece. 6 elements are
/// left: 1 byte of signs is a piece, and 6 exponents are another. That makes 79 bytes, and the
/// payload's last byte is zero.
struct NineBitPieces {
  std::vector<at::Tensor> in_groups, in_payloads, behind;

  NineBitPieces(const Padded& rows, const at::Tensor& groups,
                const std::vector<at::Tensor>& payloads) {
    for (std::size_t t = 0; t < payloads.size(); ++t) {
      const std::int64_t n = rows.places[t].elements, rest = n % kGroup, signs = (rest + 7) / 8;
      const std::int64_t from = rows.places[t].first / kGroup * kGroupBytes;
      const std::int64_t whole = n / kGroup * kGroupBytes;
      add(groups, from, payloads[t], 0, whole);
      add(groups, from + whole, payloads[t], whole, signs);
      add(groups, from + whole + kGroup / 8, payloads[t], whole + signs, rest);
      const std::int64_t used = whole + signs + rest;
      if (const std::int64_t left = payloads[t].numel() - used; left > 0)
        behind.push_back(payloads[t].narrow(0, used, left));
    }
  }

 private:
  void add(const at::Tensor& groups, std::int64_t from, const at::Tensor& payload, std::int64_t to,
           std::int64_t bytes) {
    if (bytes == 0) return;
    in_groups.push_back(groups.narrow(0, from, bytes));
    in_payloads.push_back(payload.narrow(0, to, bytes));
  }
};

void send_nine_bits(const TensorOps::Sending& tensors, const Padded& rows, const Powers& powers) {
  const at::Tensor signs = pack_codes(powers.negative.view({-1}).view(at::kByte), 1);
  const at::Tensor groups =
      at::cat({signs.view({-1, kGroup / 8}), powers.exponent.to(at::kByte).view({-1, kGroup})}, 1);
  const NineBitPieces pieces(rows, groups.view({-1}), tensors.payloads);
  at::_foreach_copy_(pieces.in_payloads, pieces.in_groups);
  if (!pieces.behind.empty()) at::_foreach_zero_(pieces.behind);
}

Powers read_nine_bits(const TensorOps::Arriving& tensors, const std::vector<at::Tensor>& payloads,
                      const Padded& rows) {
  const at::Tensor bytes =
      at::zeros({rows.elements / kGroup * kGroupBytes}, payloads.front().options());
  const NineBitPieces pieces(rows, bytes, payloads);
  at::_foreach_copy_(pieces.in_groups, pieces.in_payloads);
  const at::Tensor groups = bytes.view({-1, kGroupBytes});
  const at::Tensor signs =
      unpack_codes(groups.narrow(1, 0, kGroup / 8).reshape({-1}), rows.elements, 1);
  const at::Tensor exponent = groups.narrow(1, kGroup / 8, kGroup).reshape({-1});
  tensors.note_damage((exponent == 255).any());
  if (!pieces.behind.empty()) tensors.note_damage(at::cat(pieces.behind).any());
  return {exponent.to(at::kInt).view({-1, kRow}), signs.to(at::kBool).view({-1, kRow})};
}

/// i32[tensors]: for each tensor the exponent of code 127.
at::Tensor tops_of(const TensorOps::Values& v) {
  const at::Tensor largest =
      at::stack(at::_foreach_norm(v, std::numeric_limits<double>::infinity()));
  return (at::bitwise_right_shift(magnitude_bits(largest), 23) + 1).clamp_max(kMostExponent);
}

/// As to_short_vector() of compress/kernel/short_floats.cpp.
Powers short_powers(const at::Tensor& x, const at::Tensor& random, const at::Tensor& top) {
  const at::Tensor magnitude = magnitude_bits(x), least = (top - 126).clamp_min(1);
  const at::Tensor is_below = at::bitwise_right_shift(magnitude, 23) < least;
  const at::Tensor exponent = at::where(is_below, rounded_at_the_bottom(magnitude, random, least),
                                        at::minimum(rounded_exponent(magnitude, random), top));
  const at::Tensor is_there = exponent >= least;
  return {at::where(is_there, exponent, 0), at::bitwise_and(is_there, bits_of(x) < 0)};
}

/// Views of the payloads after their first number.
std::vector<at::Tensor> behind_tops(const std::vector<at::Tensor>& payloads) {
  return mapped(payloads, [](const at::Tensor& payload) { return payload.slice(0, 4); });
}
std::vector<at::Tensor> tops_in(const std::vector<at::Tensor>& payloads) {
  return mapped(payloads,
                [](const at::Tensor& payload) { return payload.narrow(0, 0, 4).view(at::kInt); });
}

void send_eight_bits(const TensorOps::Sending& tensors, const Padded& rows, const Powers& powers,
                     const at::Tensor& tops) {
  const at::Tensor code =
      at::where(powers.exponent > 0, powers.exponent + (127 - rows.by_row(tops)), 0);
  const at::Tensor bytes =
      at::bitwise_or(code, powers.negative.to(at::kInt) * 128).to(at::kByte).view({-1});
  at::_foreach_copy_(tops_in(tensors.payloads), tops.split(1));
  at::_foreach_copy_(behind_tops(tensors.payloads), rows.codes_of_each(bytes, 8));
}

/// Damaged are a top out of range, a code after the last element, and a code whose exponent f32
/// does not have.
Powers read_eight_bits(const TensorOps::Arriving& tensors, const std::vector<at::Tensor>& payloads,
                       const Padded& rows) {
  const at::Tensor tops = at::cat(tops_in(payloads));
  tensors.note_damage(at::bitwise_or(tops<1, tops> kMostExponent).any());
  const at::Tensor bytes = at::zeros({rows.elements}, payloads.front().options());
  at::_foreach_copy_(rows.codes_of_each(bytes, 8), behind_tops(payloads));
  const at::Tensor all = bytes.view({-1, kRow}).to(at::kInt);
  tensors.note_damage(at::where(rows.is_filled(all.options()), 0, all).any());
  const at::Tensor code = at::bitwise_and(all, 127), is_there = code > 0;
  const at::Tensor exponent = code - 127 + rows.by_row(tops);
  const at::Tensor is_none = at::bitwise_or(exponent<1, exponent> kMostExponent);
  tensors.note_damage(at::bitwise_and(is_none, is_there).any());
  return {at::where(is_there, exponent, 0), all >= 128};
}

}  // namespace

void TensorOps::send(const Sending& tensors, PowerFormat format) {
  const Values v = corrected(tensors);
  const Padded rows = Padded::of(v, kRow);
  const at::Tensor x = rows.array(v).view({-1, kRow});
  const at::Tensor random = shifted_right(rounding_bits(tensors, rows), 9);
  Powers powers;
  if (format == PowerFormat::eight_bits) {
    const at::Tensor tops = tops_of(v);
    powers = short_powers(x, random, rows.by_row(tops));
    send_eight_bits(tensors, rows, powers, tops);
  } else {
    powers.exponent = rounded_exponent(magnitude_bits(x), random);
    powers.negative = at::bitwise_and(powers.exponent != 0, bits_of(x) < 0);
    send_nine_bits(tensors, rows, powers);
  }
  if (tensors.keeps_residual())
    at::_foreach_sub_(v, rows.parts_of(power_of(powers.exponent, powers.negative).view({-1})));
}

void TensorOps::receive(const Arriving& tensors, PowerFormat format) {
  const Padded rows = Padded::of(tensors.places, kRow);
  check_all_gathered(tensors, "natural", [&](std::size_t t) {
    return compress::bytes_of(format, rows.places[t].elements);
  });
  set_average(tensors, rows, [&](const Values& payloads, std::size_t) {
    const Powers powers = format == PowerFormat::eight_bits
                              ? read_eight_bits(tensors, payloads, rows)
                              : read_nine_bits(tensors, payloads, rows);
    return power_of(powers.exponent, powers.negative);
  });
}

}  // namespace linerate::torch_codecs
