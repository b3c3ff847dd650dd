// Powers of two on the host, for `natural`, a block of elements at a time. A block of the decoder
// is also a block of the random stream, and a whole number of groups of 32. So a block can begin at
// 36 bytes for each group before it.
#include <algorithm>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/kernel/all_finite.hpp"
#include "linerate/compress/kernel/powers.hpp"
#include "linerate/compress/kernel/residual.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/rounding_bits.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
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
