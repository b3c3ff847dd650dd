// natural: Horvath et al. 2019 (arXiv 1905.10988): each element becomes a neighbouring power of
// two, at random so that its mean is the element; the variance is at most 1/8 of its square. 9 bits
// by default: sign and exponent as they are, in one pass and without a limit of magnitudes. 8 bits
// reach 2^126 below the largest element, which a pass before finds; what is smaller becomes 0 or
// the least power. Biased in one place: above 2^127 there is no power, and values are rounded down.
#include <algorithm>

#include "linerate/compress/kernel/all_finite.hpp"
#include "linerate/compress/kernel/powers.hpp"
#include "linerate/compress/kernel/residual.hpp"
#include "linerate/compress/method/bucket_options.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/rounding_bits.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::size_t kNaturalBlock = kRoundingBlock;
static_assert(kNaturalBlock == kDecodeBlock && kNaturalBlock % 32 == 0);

/// Elements [first, first + block) of what may be empty.
template <class T>
std::span<T> block_of(std::span<T> all, std::size_t first) {
  return all.empty() ? all : all.subspan(first, std::min(kNaturalBlock, all.size() - first));
}

/// Payload: groups of kernel/powers.hpp, padded with zeros to 4 bytes.
class NineBits : public Codec {
 public:
  explicit NineBits(const Shape& shape) : n_(to_index(shape.elements)) {}
  static std::int64_t bytes_of(std::int64_t n) { return pad4(ceil_div(9 * n, 8)); }

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    for (std::size_t first = 0; first < n_; first += kNaturalBlock)
      to_powers(block_of(input.gradient, first), block_of(input.residual, first), input.keys.own,
                first, payload.data() + first / 32 * 36);
    zero_from(payload.first(bytes()), power_bytes(n_));
    return bytes();
  }
  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_gathered(arrived, bytes(), "natural");
    for (std::size_t p = 0; p < arrived.payloads.size(); ++p)
      check_zero_from(arrived.payloads[p], power_bytes(n_), "natural", p);
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      if (!add_powers(arrived.payloads[p].data() + first / 32 * 36, out))
        refuse_payload("natural", p, "an exponent that is none");
    });
  }

 private:
  std::size_t bytes() const { return to_index(bytes_of(static_cast<std::int64_t>(n_))); }
  std::size_t n_;
};

/// Payload: u32 exponent of code 127, as f32 has it, then a byte an element, padded with zeros.
class EightBits : public Codec {
 public:
  explicit EightBits(const Shape& shape) : n_(to_index(shape.elements)) {}
  static std::int64_t bytes_of(std::int64_t n) { return 4 + pad4(n); }

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
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
  void decode(int, const Arrived& arrived, std::span<float> mean) override {
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
  std::size_t bytes() const { return to_index(bytes_of(static_cast<std::int64_t>(n_))); }
  std::size_t n_;
};

template <class Bits>
class Natural : public Compressor {
 public:
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(
        shape, {.combine = Combine::gather, .bytes = Bits::bytes_of(shape.elements)});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<Bits>(shape);
  }
  Residual residual() const override { return Residual::optional; }
  bool is_unbiased() const override { return true; }
};

std::unique_ptr<const Compressor> make_natural(doc::OptionReader& options) {
  if (read_natural_bits(options) == 8) return std::make_unique<Natural<EightBits>>();
  return std::make_unique<Natural<NineBits>>();
}

}  // namespace

int read_natural_bits(doc::OptionReader& options) { return read_bits(options, {8, 9}, 9); }

CompressorLine compressor_natural() {
  return {"natural", make_natural,
          "Sign and exponent of each element, rounded at random to a power of two.",
          "Horvath et al. 2019 (arXiv 1905.10988)"};
}

}  // namespace linerate::compress
