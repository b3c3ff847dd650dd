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

void multiply(std::span<float> factor, float by) {
  for (float& x : factor) x *= by;
}

double length_of(std::span<const float> vector) {
  const std::vector<double> wide(vector.begin(), vector.end());
  return std::sqrt(dot(wide, wide));
}

}  // namespace

void HostOps::LowRank::begin(const std::vector<FactorSize*>& sizes) {
  tensors_.clear();
  for (const FactorSize* const size : sizes)
    tensors_.push_back({*size,
                        {std::vector<float>(to_index(size->rank * size->rows)),
                         std::vector<float>(to_index(size->rank * size->columns))}});
}

void HostOps::LowRank::take(Side side, const std::vector<KeptValues*>& kept) {
  for (std::size_t t = 0; t < kept.size(); ++t) tensors_[t].factor[side] = kept[t]->now();
}
void HostOps::LowRank::leave(Side side, const std::vector<KeptValues*>& kept) {
  for (std::size_t t = 0; t < kept.size(); ++t) kept[t]->next() = tensors_[t].factor[side];
}

/// A length of zero or infinity is no direction, so the vector is drawn from the stream that all
/// ranks share. All ranks had the same factor, so all draw the same vectors anew.
void HostOps::LowRank::make_unit(Side side, const Sending& tensors) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    std::vector<float>& factor = tensors_[t].factor[side];
    const auto rank = to_index(tensors_[t].size.rank);
    const std::size_t n = factor.size() / rank;
    tensors_[t].stream = tensors.items[t].input.keys.shared;
    for (std::size_t j = 0; j < rank; ++j) {
      const auto vector = std::span(factor).subspan(j * n, n);
      double length = length_of(vector);
      if (!(length > 0 && std::isfinite(length))) {
        fill_random(tensors_[t].stream, j, vector);
        length = length_of(vector);
      }
      for (float& x : vector) x = static_cast<float>(x / length);
    }
  }
}

void HostOps::LowRank::orthonormalise(Side side) {
  for (OfTensor& one : tensors_)
    one.vanished = compress::orthonormalise(one.factor[side], to_index(one.size.rank));
}
void HostOps::LowRank::redraw_vanished(Side side) {
  for (OfTensor& one : tensors_) {
    const auto rank = to_index(one.size.rank);
    const std::size_t n = one.factor[side].size() / rank;
    for (const std::size_t j : one.vanished)
      fill_random(one.stream, rank + j, std::span(one.factor[side]).subspan(j * n, n));
  }
}
void HostOps::LowRank::orthonormalise_fresh(Side side, const Sending& tensors) {
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    compress::orthonormalise_fresh(tensors_[t].factor[side], to_index(tensors_[t].size.rank),
                                   tensors.items[t].input.keys.shared);
}

/// The factor that stays is scaled down by a power of two before the product, so that sums over
/// ranks stay finite. It is then scaled up by the same power. So the product of both factors is as
/// if nothing had been scaled, to the bit, except at the ends of the range of f32.
void HostOps::LowRank::send(OfTensor& factors, const Input& input, const FactorPass& pass) {
  std::vector<float>& fixed = factors.factor[other(pass.sent)];
  auto& [left, right] = factors.factor;
  const auto rows = to_index(factors.size.rows), columns = to_index(factors.size.columns);
  const float scale = headroom(input.ranks, fixed.size() / to_index(factors.size.rank));
  std::vector<float> scaled = fixed;
  multiply(scaled, scale);
  multiply(fixed, 1 / scale);
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

void HostOps::LowRank::send(const Sending& tensors, const FactorPass& pass) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    auto& [input, payload, sent] = tensors.items[t];
    send(tensors_[t], input, pass);
    const std::vector<float>& factor = tensors_[t].factor[pass.sent];
    sent = 4 * factor.size();
    std::memcpy(payload.data(), factor.data(), sent);
  }
}

void HostOps::LowRank::receive(Side side, const Arriving& tensors, std::string_view method,
                               Taken taken) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const Arrived& arrived = tensors.items[t].arrived;
    std::vector<float>& factor = tensors_[t].factor[side];
    if (taken == Taken::mean) {
      read_mean(arrived, factor, method);
      continue;
    }
    check_sum(arrived, 4 * factor.size(), method);
    std::memcpy(factor.data(), arrived.payloads[0].data(), 4 * factor.size());
  }
}

void HostOps::LowRank::write_products(const Arriving& tensors) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const OfTensor& one = tensors_[t];
    write_product(one.factor.left, one.factor.right, to_index(one.size.rows),
                  to_index(one.size.columns), tensors.items[t].mean.data());
  }
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

void send_powers(const Input& input, PowerFormat format, std::span<std::byte> payload) {
  const bool is_short = format == PowerFormat::eight_bits;
  std::span<const float> v = input.gradient;
  std::uint32_t top = 0;
  if (is_short) {
    add_residual(input);
    v = corrected(input);
    top = std::min(254u, (largest_magnitude_bits(v) >> 23) + 1);
    write_at(payload, 0, top);
  }
  for (std::size_t first = 0; first < v.size(); first += kNaturalBlock) {
    const auto part = v.subspan(first, std::min(kNaturalBlock, v.size() - first));
    const auto rest = part_if_any(input.residual, first, part.size());
    if (is_short)
      to_short_powers(part, rest, top, input.keys.own, first, payload.data() + 4 + first);
    else
      to_powers(part, rest, input.keys.own, first, payload.data() + first / 32 * 36);
  }
}

/// Adds a block that begins with element `first`. False if a code stands for no number.
bool add_block(PowerFormat format, std::span<const std::byte> payload, std::size_t first,
               std::span<float> out) {
  if (format == PowerFormat::nine_bits) return add_powers(payload.data() + first / 32 * 36, out);
  const auto top = read_at<std::uint32_t>(payload, 0);
  return top >= 1 && top <= 254 && add_short_powers(payload.data() + 4 + first, top, out);
}

}  // namespace

void HostOps::send(const Sending& tensors, PowerFormat format) {
  for (auto& [input, payload, sent] : tensors.items) {
    const std::size_t n = input.gradient.size();
    send_powers(input, format, payload);
    sent = to_index(bytes_of(format, static_cast<std::int64_t>(n)));
    zero_from(payload.first(sent), used_bytes(format, n));
  }
}
HostOps::Damage HostOps::receive(const Arriving& tensors, PowerFormat format) {
  for (const auto& [arrived, mean] : tensors.items) {
    const auto& payloads = arrived.payloads;
    check_gathered(arrived, to_index(bytes_of(format, std::ssize(mean))), "natural");
    for (std::size_t p = 0; p < payloads.size(); ++p)
      check_zero_from(payloads[p], used_bytes(format, mean.size()), "natural", p);
    compress::average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      if (!add_block(format, payloads[p], first, out))
        refuse_payload("natural", p, "an exponent that is none");
    });
  }
  return {};
}

}  // namespace linerate::compress
