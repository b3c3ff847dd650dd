// Powers of two, for tensors where they lie. Only integers are used, so the bits are the host's
// (kernel/powers.hpp, which tells how rounding at random works). The tensors of a bucket are one
// array, and each is filled up to whole rows, which are blocks of random numbers.
#include "linerate/compress/kernel/powers.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/bucket_arrays.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
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

Powers read_nine_bits(const std::vector<at::Tensor>& payloads, const Padded& rows,
                      TensorOps::Damage& damage) {
  const at::Tensor bytes =
      at::zeros({rows.elements / kGroup * kGroupBytes}, payloads.front().options());
  const NineBitPieces pieces(rows, bytes, payloads);
  at::_foreach_copy_(pieces.in_groups, pieces.in_payloads);
  const at::Tensor groups = bytes.view({-1, kGroupBytes});
  const at::Tensor signs =
      unpack_codes(groups.narrow(1, 0, kGroup / 8).reshape({-1}), rows.elements, 1);
  const at::Tensor exponent = groups.narrow(1, kGroup / 8, kGroup).reshape({-1});
  damage = either(damage, (exponent == 255).any());
  if (!pieces.behind.empty()) damage = either(damage, at::cat(pieces.behind).any());
  return {exponent.to(at::kInt).view({-1, kRow}), signs.to(at::kBool).view({-1, kRow})};
}

/// i32[tensors]: for each tensor the exponent of code 127.
at::Tensor tops_of(const TensorOps::Values& v) {
  const at::Tensor largest =
      at::stack(at::_foreach_norm(v, std::numeric_limits<double>::infinity()));
  return (at::bitwise_right_shift(magnitude_bits(largest), 23) + 1).clamp_max(kMostExponent);
}

/// As to_short_vector() of kernel/powers.cpp.
Powers short_powers(const at::Tensor& x, const at::Tensor& random, const at::Tensor& top) {
  const at::Tensor magnitude = magnitude_bits(x), least = (top - 126).clamp_min(1);
  const at::Tensor is_below = at::bitwise_right_shift(magnitude, 23) < least;
  const at::Tensor exponent = at::where(is_below, rounded_at_the_bottom(magnitude, random, least),
                                        at::minimum(rounded_exponent(magnitude, random), top));
  const at::Tensor is_there = exponent >= least;
  return {at::where(is_there, exponent, 0), at::bitwise_and(is_there, bits_of(x) < 0)};
}

/// Views of each tensor's codes in an array, filled up as its payload is.
std::vector<at::Tensor> codes_of_each(const Padded& rows, const at::Tensor& codes) {
  std::vector<at::Tensor> all;
  for (const TensorOps::Place& place : rows.places)
    all.push_back(codes.narrow(0, place.first, compress::pad4(place.elements)));
  return all;
}
/// Views of the payloads after their first number.
std::vector<at::Tensor> behind_tops(const std::vector<at::Tensor>& payloads) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& payload : payloads)
    all.push_back(payload.narrow(0, 4, payload.numel() - 4));
  return all;
}
std::vector<at::Tensor> tops_in(const std::vector<at::Tensor>& payloads) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& payload : payloads) all.push_back(payload.narrow(0, 0, 4).view(at::kInt));
  return all;
}

void send_eight_bits(const TensorOps::Sending& tensors, const Padded& rows, const Powers& powers,
                     const at::Tensor& tops) {
  const at::Tensor code =
      at::where(powers.exponent > 0, powers.exponent + (127 - rows.by_row(tops)), 0);
  const at::Tensor bytes =
      at::bitwise_or(code, powers.negative.to(at::kInt) * 128).to(at::kByte).view({-1});
  at::_foreach_copy_(tops_in(tensors.payloads), tops.split(1));
  at::_foreach_copy_(behind_tops(tensors.payloads), codes_of_each(rows, bytes));
}

/// Damaged are a top out of range, a code after the last element, and a code whose exponent f32
/// does not have.
Powers read_eight_bits(const std::vector<at::Tensor>& payloads, const Padded& rows,
                       TensorOps::Damage& damage) {
  const at::Tensor tops = at::cat(tops_in(payloads));
  damage = either(damage, at::bitwise_or(tops<1, tops> kMostExponent).any());
  const at::Tensor bytes = at::zeros({rows.elements}, payloads.front().options());
  at::_foreach_copy_(codes_of_each(rows, bytes), behind_tops(payloads));
  const at::Tensor all = bytes.view({-1, kRow}).to(at::kInt);
  damage = either(damage, at::where(rows.is_filled(all.options()), 0, all).any());
  const at::Tensor code = at::bitwise_and(all, 127), is_there = code > 0;
  const at::Tensor exponent = code - 127 + rows.by_row(tops);
  const at::Tensor is_none = at::bitwise_or(exponent<1, exponent> kMostExponent);
  damage = either(damage, at::bitwise_and(is_none, is_there).any());
  return {at::where(is_there, exponent, 0), all >= 128};
}

}  // namespace

void TensorOps::send_powers(const Sending& tensors, PowerFormat format) {
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

TensorOps::Damage TensorOps::average_powers(const Arriving& tensors, PowerFormat format) {
  const Padded rows = Padded::of(tensors.places, kRow);
  for (std::size_t t = 0; t < tensors.arrived.size(); ++t)
    check_gathered(tensors.arrived[t], compress::bytes_of(format, rows.places[t].elements),
                   "natural");
  Damage damage;
  set_average(tensors, rows, [&](const Values& payloads, std::size_t) {
    const Powers powers = format == PowerFormat::eight_bits
                              ? read_eight_bits(payloads, rows, damage)
                              : read_nine_bits(payloads, rows, damage);
    return power_of(powers.exponent, powers.negative);
  });
  return damage;
}

}  // namespace linerate::torch_codecs
