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
    tensors_.push_back({*size, std::vector<float>(to_index(size->rank * size->rows)),
                        std::vector<float>(to_index(size->rank * size->columns))});
}

void HostOps::LowRank::take(Side side, const std::vector<KeptValues*>& kept) {
  for (std::size_t t = 0; t < kept.size(); ++t) tensors_[t].at(side) = kept[t]->now();
}
void HostOps::LowRank::leave(Side side, const std::vector<KeptValues*>& kept) {
  for (std::size_t t = 0; t < kept.size(); ++t) kept[t]->next() = tensors_[t].at(side);
}

/// A length of zero or infinity is no direction, so the vector is drawn from the stream that all
/// ranks share. All ranks had the same factor, so all draw the same vectors anew.
void HostOps::LowRank::make_unit(Side side, const Sending& tensors) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    std::vector<float>& factor = tensors_[t].at(side);
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
    one.vanished = compress::orthonormalise(one.at(side), to_index(one.size.rank));
}
void HostOps::LowRank::redraw_vanished(Side side) {
  for (OfTensor& one : tensors_) {
    const auto rank = to_index(one.size.rank);
    const std::size_t n = one.at(side).size() / rank;
    for (const std::size_t j : one.vanished)
      fill_random(one.stream, rank + j, std::span(one.at(side)).subspan(j * n, n));
  }
}
void HostOps::LowRank::orthonormalise_fresh(Side side, const Sending& tensors) {
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    compress::orthonormalise_fresh(tensors_[t].at(side), to_index(tensors_[t].size.rank),
                                   tensors.items[t].input.keys.shared);
}

/// The factor that stays is scaled down by a power of two before the product, so that sums over
/// ranks stay finite. It is then scaled up by the same power. So the product of both factors is as
/// if nothing had been scaled, to the bit, except at the ends of the range of f32.
void HostOps::LowRank::send(OfTensor& factors, const Input& input, const FactorPass& pass) {
  std::vector<float>&fixed = factors.at(other(pass.sent)), &left = factors.left,
  &right = factors.right;
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
  if (pass.sent == Side::left)
    return add_residual_and_multiply(input, scaled, columns, left, keep_rest);
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
    const std::vector<float>& factor = tensors_[t].at(pass.sent);
    sent = 4 * factor.size();
    std::memcpy(payload.data(), factor.data(), sent);
  }
}

void HostOps::LowRank::receive(Side side, const Arriving& tensors, std::string_view method,
                               Taken taken) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const Arrived& arrived = tensors.items[t].arrived;
    std::vector<float>& factor = tensors_[t].at(side);
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
    write_product(one.left, one.right, to_index(one.size.rows), to_index(one.size.columns),
                  tensors.items[t].mean.data());
  }
}

// Powers of two on the host, for `natural`, a block of elements at a time. A block of the decoder
// is also a block of the random stream, and a whole number of groups of 32. So a block can begin at
// 36 bytes for each group before it.

namespace {

constexpr std::size_t kNaturalBlock = kRoundingBlock;
static_assert(kNaturalBlock == kDecodeBlock && kNaturalBlock % 32 == 0);

/// Elements [first, first + block) of an array; empty for an empty array, such as a residual that
/// is not kept.
template <class T>
std::span<T> block_of(std::span<T> all, std::size_t first) {
  return all.empty() ? all : all.subspan(first, std::min(kNaturalBlock, all.size() - first));
}

/// Payload: groups of kernel/powers.hpp, padded with zeros to 4 bytes.
class NineBits {
 public:
  explicit NineBits(std::size_t elements) : n_(elements) {}

  std::size_t encode(const Input& input, std::span<std::byte> payload) const {
    for (std::size_t first = 0; first < n_; first += kNaturalBlock)
      to_powers(block_of(input.gradient, first), block_of(input.residual, first), input.keys.own,
                first, payload.data() + first / 32 * 36);
    zero_from(payload.first(bytes()), power_bytes(n_));
    return bytes();
  }
  void decode(const Arrived& arrived, std::span<float> mean) const {
    check_gathered(arrived, bytes(), "natural");
    for (std::size_t p = 0; p < arrived.payloads.size(); ++p)
      check_zero_from(arrived.payloads[p], power_bytes(n_), "natural", p);
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      if (!add_powers(arrived.payloads[p].data() + first / 32 * 36, out))
        refuse_payload("natural", p, "an exponent that is none");
    });
  }

 private:
  std::size_t bytes() const {
    return to_index(bytes_of(PowerFormat::nine_bits, static_cast<std::int64_t>(n_)));
  }
  std::size_t n_;
};

/// Payload: u32 exponent of code 127, as f32 has it, then a byte an element, padded with zeros.
class EightBits {
 public:
  explicit EightBits(std::size_t elements) : n_(elements) {}

  std::size_t encode(const Input& input, std::span<std::byte> payload) const {
    add_residual(input);
    const std::span<const float> v = corrected(input);
    const std::uint32_t top = std::min(254u, (largest_magnitude_bits(v) >> 23) + 1);
    write_at(payload, 0, top);
    for (std::size_t first = 0; first < n_; first += kNaturalBlock) {
      std::byte* out = payload.data() + 4 + first;
      if (input.residual.empty())
        to_short_powers(block_of(v, first), top, input.keys.own, first, out);
      else
        to_short_powers_and_keep(block_of(input.residual, first), top, input.keys.own, first, out);
    }
    zero_from(payload.first(bytes()), 4 + n_);
    return bytes();
  }
  void decode(const Arrived& arrived, std::span<float> mean) const {
    check_gathered(arrived, bytes(), "natural");
    for (std::size_t p = 0; p < arrived.payloads.size(); ++p) {
      check_zero_from(arrived.payloads[p], 4 + n_, "natural", p);
      const auto top = read_at<std::uint32_t>(arrived.payloads[p], 0);
      if (top < 1 || top > 254) refuse_payload("natural", p, "an exponent that is none");
    }
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      const auto payload = arrived.payloads[p];
      if (!add_short_powers(payload.data() + 4 + first, read_at<std::uint32_t>(payload, 0), out))
        refuse_payload("natural", p, "an exponent that is none");
    });
  }

 private:
  std::size_t bytes() const {
    return to_index(bytes_of(PowerFormat::eight_bits, static_cast<std::int64_t>(n_)));
  }
  std::size_t n_;
};

}  // namespace

void HostOps::send_powers(const Sending& tensors, PowerFormat format) {
  for (auto& [input, payload, sent] : tensors.items) {
    const std::size_t n = input.gradient.size();
    sent = format == PowerFormat::eight_bits ? EightBits(n).encode(input, payload)
                                             : NineBits(n).encode(input, payload);
  }
}
HostOps::Damage HostOps::average_powers(const Arriving& tensors, PowerFormat format) {
  for (const auto& [arrived, mean] : tensors.items)
    format == PowerFormat::eight_bits ? EightBits(mean.size()).decode(arrived, mean)
                                      : NineBits(mean.size()).decode(arrived, mean);
  return {};
}

}  // namespace linerate::compress
