// Factors on the host, for powersgd and acpsgd. A matrix is read once for each factor that is sent.
// When P is sent, the residual M - P^T Q is computed in the same pass. A row of it needs only that
// row of P. When Q is sent, the residual takes another pass, because each row needs all of Q.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "linerate/compress/cast.hpp"
#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

double length_of(std::span<const float> vector) {
  const std::vector<double> wide(vector.begin(), vector.end());
  return std::sqrt(dot(wide, wide));
}

}  // namespace

void HostOps::LowRank::begin(FactorSize& size) {
  size_ = size;
  factor_ = {std::vector<float>(to_index(size.rank * size.rows)),
             std::vector<float>(to_index(size.rank * size.columns))};
}

void HostOps::LowRank::take(Side side, KeptValues& kept) { factor_[side] = kept.now(); }
void HostOps::LowRank::leave(Side side, KeptValues& kept) { kept.next() = factor_[side]; }

std::span<float> HostOps::LowRank::vector_of(Side side, std::size_t j) {
  const std::size_t n = factor_[side].size() / to_index(size_.rank);
  return std::span(factor_[side]).subspan(j * n, n);
}

/// A length of zero or infinity is no direction, so the vector is drawn from the stream that all
/// ranks share. All ranks had the same factor, so all draw the same vectors anew.
void HostOps::LowRank::make_unit(Side side, const Sending& tensor) {
  stream_ = tensor.keys.shared;
  for (std::size_t j = 0; j < to_index(size_.rank); ++j) {
    const std::span<float> own = vector_of(side, j);
    double length = length_of(own);
    if (!(length > 0 && std::isfinite(length))) {
      fill_random(stream_, j, own);
      length = length_of(own);
    }
    for (float& x : own) x = static_cast<float>(x / length);
  }
}

void HostOps::LowRank::orthonormalise(Side side) {
  vanished_ = compress::orthonormalise(factor_[side], to_index(size_.rank));
}
void HostOps::LowRank::redraw_vanished(Side side) {
  for (const std::size_t j : vanished_)
    fill_random(stream_, to_index(size_.rank) + j, vector_of(side, j));
}
void HostOps::LowRank::orthonormalise_fresh(Side side, const Sending& tensor) {
  compress::orthonormalise_fresh(factor_[side], to_index(size_.rank), tensor.keys.shared);
}

/// The factor that stays is scaled down by a power of two before the product, so that sums over
/// ranks stay finite. It is then scaled up by the same power. So the product of both factors is as
/// if nothing had been scaled, to the bit, except at the ends of the range of f32.
void HostOps::LowRank::multiply(const Input& input, const FactorPass& pass) {
  std::vector<float>& fixed = factor_[other(pass.sent)];
  auto& [left, right] = factor_;
  const auto rows = to_index(size_.rows), columns = to_index(size_.columns);
  const float scale = headroom(input.ranks, fixed.size() / to_index(size_.rank));
  std::vector<float> scaled = fixed;
  for (float& x : scaled) x *= scale;
  for (float& x : fixed) x *= 1 / scale;
  const auto keep_rest = [&](std::size_t first, std::size_t count) {
    if (!pass.keeps_rest || input.residual.empty()) return;
    subtract_product(left.data() + first, rows, right, count, columns,
                     &input.residual[first * columns]);
  };
  if (pass.sent == Side::left) {
    // A row of P needs only its own row of M, so a strip of rows at a time, while it is in the
    // cache.
    const std::size_t strip = std::max<std::size_t>(8, 2 * kChunk / columns);
    const RightProduct product(scaled, columns);
    for (std::size_t i = 0; i < rows; i += strip) {
      const std::size_t count = std::min(strip, rows - i);
      add_residual(input, i * columns, count * columns);
      product({corrected(input).data() + i * columns, count, columns}, left.data() + i, rows);
      keep_rest(i, count);
    }
    return;
  }
  BeforeElements before;
  if (pass.adds_residual)
    before = [&](std::size_t first, std::size_t count) { add_residual(input, first, count); };
  left_product({corrected(input).data(), rows, columns}, scaled, right, before);
  keep_rest(0, rows);
}

void HostOps::LowRank::send(const Sending& tensor, const FactorPass& pass) {
  multiply(tensor, pass);
  const auto factor = std::as_bytes(std::span(factor_[pass.sent]));
  std::copy(factor.begin(), factor.end(), tensor.payload.begin());
  tensor.sent = factor.size();
}

void HostOps::LowRank::receive(Side side, const Arriving& tensor, std::string_view method,
                               Taken taken) {
  std::vector<float>& factor = factor_[side];
  if (taken == Taken::mean) return read_mean(tensor, factor, method);
  check_sum(tensor, 4 * factor.size(), method);
  std::memcpy(factor.data(), tensor.payloads[0].data(), 4 * factor.size());
}

void HostOps::LowRank::write_products(const Arriving& tensor) {
  write_product(factor_.left, factor_.right, to_index(size_.rows), to_index(size_.columns),
                tensor.mean.data());
}

// Powers of two on the host, for `natural`, a block of elements at a time. A block of the decoder
// is also a block of the random stream, and a whole number of groups of 32. So a block can begin at
// 36 bytes for each group before it.

namespace {

constexpr std::size_t kNaturalBlock = kRoundingBlock;
static_assert(kNaturalBlock == kDecodeBlock && kNaturalBlock % 32 == 0);

/// Bytes of a payload before the zeros that fill it up.
std::size_t used_bytes(PowerFormat format, std::size_t elements) {
  return format == PowerFormat::nine_bits ? power_bytes(elements) : 4 + elements;
}

/// Adds a block that begins with element `first`. False if a code stands for no number.
bool add_block(PowerFormat format, std::span<const std::byte> payload, std::size_t first,
               std::span<float> out) {
  if (format == PowerFormat::nine_bits) return add_powers(payload.data() + first / 32 * 36, out);
  const auto top = read_at<std::uint32_t>(payload, 0);
  return top >= 1 && top <= 254 && add_short_powers(payload.data() + 4 + first, top, out);
}

}  // namespace

void HostOps::send(const Sending& tensor, PowerFormat format) {
  const std::span<std::byte> payload = tensor.payload;
  const bool is_short = format == PowerFormat::eight_bits;
  std::span<const float> v = tensor.gradient;
  std::uint32_t top = 0;
  if (is_short) {
    add_residual(tensor);
    v = corrected(tensor);
    top = std::min(254u, (largest_magnitude_bits(v) >> 23) + 1);
    write_at(payload, 0, top);
  }
  for (std::size_t first = 0; first < v.size(); first += kNaturalBlock) {
    const auto part = v.subspan(first, std::min(kNaturalBlock, v.size() - first));
    const auto rest = part_if_any(tensor.residual, first, part.size());
    if (is_short)
      to_short_powers(part, rest, top, tensor.keys.own, first, payload.data() + 4 + first);
    else
      to_powers(part, rest, tensor.keys.own, first, payload.data() + first / 32 * 36);
  }
  tensor.sent = to_index(bytes_of(format, std::ssize(v)));
  zero_from(payload.first(tensor.sent), used_bytes(format, v.size()));
}
void HostOps::receive(const Arriving& tensor, PowerFormat format) {
  const std::span<float> mean = tensor.mean;
  const auto& payloads = tensor.payloads;
  check_gathered(tensor, to_index(bytes_of(format, std::ssize(mean))), "natural");
  for (std::size_t p = 0; p < payloads.size(); ++p)
    check_zero_from(payloads[p], used_bytes(format, mean.size()), "natural", p);
  compress::average(tensor, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
    if (!add_block(format, payloads[p], first, out))
      refuse_payload("natural", p, "an exponent that is none");
  });
}

}  // namespace linerate::compress
