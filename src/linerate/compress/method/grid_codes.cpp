#include "linerate/compress/method/grid_codes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "linerate/compress/kernel/pack_codes.hpp"
#include "linerate/compress/kernel/residual.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/rounding_bits.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

/// Elements that are worked on at a time: their codes and values stay in the first-level cache.
constexpr std::size_t kBlock = kRoundingBlock;
static_assert(kBlock == kDecodeBlock);
using Codes = std::array<std::int8_t, kBlock>;

std::int64_t bytes_of(const GridFormat& format, std::int64_t n) {
  return heads_bytes(format, n) + pad4(ceil_div(n * format.bits, 8));
}

/// Between two's complement and terngrad's codes, four a byte: swaps 10 and 11.
std::byte swap_ternary(std::byte codes) { return codes ^ (codes >> 1 & std::byte{0x55}); }

class GridCodec : public Codec {
 public:
  GridCodec(const GridFormat& format, const Shape& shape)
      : format_(format),
        n_(to_index(shape.elements)),
        bucket_(format.bucket ? format.bucket : n_),
        codes_at_(to_index(heads_bytes(format, shape.elements))),
        bytes_(to_index(bytes_of(format, shape.elements))) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    zero_from(payload.first(bytes_), codes_end());
    if (format_.bucket == 0) {
      BucketHead head;
      format_.heads_of(input.gradient, format_, &head);
      write_head(0, head, payload);
    }
    for (std::size_t first = 0; first < n_; first += kBlock) encode_block(first, input, payload);
    return bytes_;
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_gathered(arrived, bytes_, format_.method);
    for (std::size_t p = 0; p < arrived.payloads.size(); ++p) check(arrived.payloads[p], p);
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      Codes codes;
      if (!read_codes(arrived.payloads[p], first, out.size(), codes))
        refuse_payload(format_.method, p, "a code that is none");
      BlockGrids room;
      add_codes(codes.data(), grids_at(first, out.size(), arrived.payloads[p], room), out);
    });
  }

 private:
  using BlockHeads = std::array<BucketHead, kBlock / 32>;
  using BlockGrids = std::array<Grid, kBlock / 32>;

  void encode_block(std::size_t first, const Input& input, std::span<std::byte> payload) const {
    const std::size_t count = std::min(kBlock, n_ - first);
    add_residual(input, first, count);
    const std::span<const float> v = corrected(input).subspan(first, count);
    if (format_.bucket) {
      BlockHeads heads;
      format_.heads_of(v, format_, heads.data());
      for (std::size_t at = 0, b = 0; at < count; at += bucket_, ++b)
        write_head(first + at, heads[b], payload);
    }
    Codes codes;
    BlockGrids room;
    const Grids grids = grids_at(first, count, payload, room);
    to_codes(v, grids, {format_.is_stochastic, input.keys.own, first}, codes.data());
    if (!input.residual.empty())
      subtract_codes(codes.data(), grids, input.residual.subspan(first, count));
    write_codes(codes, first, count, payload);
  }

  /// Grids of elements [first, first + count) from the payload.
  Grids grids_at(std::size_t first, std::size_t count, std::span<const std::byte> payload,
                 BlockGrids& room) const {
    const std::size_t buckets = format_.bucket ? (count + bucket_ - 1) / bucket_ : 1;
    for (std::size_t b = 0; b < buckets; ++b) room[b] = grid_at(first + b * bucket_, payload);
    return {room.data(), bucket_, format_.top, format_.is_signed};
  }

  std::size_t codes_end() const { return codes_at_ + (n_ * to_index(format_.bits) + 7) / 8; }
  std::size_t code_at(std::size_t element) const {
    return codes_at_ + element * to_index(format_.bits) / 8;
  }
  void write_codes(const Codes& codes, std::size_t first, std::size_t count,
                   std::span<std::byte> payload) const {
    const auto to = payload.subspan(code_at(first), code_bytes(count));
    pack_codes(codes.data(), count, format_.bits, to.data());
    if (format_.ternary) std::transform(to.begin(), to.end(), to.begin(), swap_ternary);
  }
  /// False if one is the most negative number, which stands for nothing.
  bool read_codes(std::span<const std::byte> payload, std::size_t first, std::size_t count,
                  Codes& codes) const {
    auto from = payload.subspan(code_at(first), code_bytes(count));
    std::array<std::byte, kBlock / 4> swapped;
    if (format_.ternary) {
      std::transform(from.begin(), from.end(), swapped.begin(), swap_ternary);
      from = std::span(swapped).first(from.size());
    }
    unpack_codes(from.data(), count, format_.bits, format_.is_signed, codes.data());
    if (!format_.is_signed) return true;
    int least = 0;
    for (std::size_t i = 0; i < count; ++i) least = std::min<int>(least, codes[i]);
    return least >= -format_.top;
  }
  std::size_t code_bytes(std::size_t count) const {
    return (count * to_index(format_.bits) + 7) / 8;
  }

  std::size_t head_at(std::size_t element) const {
    return element / bucket_ * 4 * format_.head_size;
  }
  void write_head(std::size_t element, const BucketHead& head, std::span<std::byte> payload) const {
    for (std::size_t i = 0; i < format_.head_size; ++i)
      write_at(payload, head_at(element) + 4 * i, head[i]);
  }
  Grid grid_at(std::size_t element, std::span<const std::byte> payload) const {
    BucketHead head = {};
    for (std::size_t i = 0; i < format_.head_size; ++i)
      head[i] = read_at<float>(payload, head_at(element) + 4 * i);
    return format_.grid_of(head, format_);
  }
  void check(std::span<const std::byte> payload, std::size_t p) const {
    for (std::size_t element = 0; element < n_; element += bucket_) {
      const Grid grid = grid_at(element, payload);
      if (!std::isfinite(grid.base) || !std::isfinite(grid.unit) || grid.unit < 0)
        refuse_payload(format_.method, p, "a scale that no bucket has");
    }
    const std::size_t used = n_ * to_index(format_.bits) % 8;
    if (used != 0 && std::to_integer<int>(payload[codes_end() - 1]) >> used)
      refuse_payload(format_.method, p, "bits after the last element");
    check_zero_from(payload, codes_end(), format_.method, p);
  }

  GridFormat format_;
  std::size_t n_, bucket_, codes_at_, bytes_;
};

class GridCodes : public Compressor {
 public:
  explicit GridCodes(const GridFormat& format) : format_(format) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(
        shape, {.combine = Combine::gather, .bytes = bytes_of(format_, shape.elements)});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<GridCodec>(format_, shape);
  }
  Residual residual() const override { return format_.residual; }
  bool is_unbiased() const override { return format_.unbiased; }

 private:
  GridFormat format_;
};

}  // namespace

std::int64_t buckets_of(const GridFormat& format, std::int64_t n) {
  return format.bucket ? ceil_div(n, static_cast<std::int64_t>(format.bucket)) : 1;
}
std::int64_t heads_bytes(const GridFormat& format, std::int64_t n) {
  return 4 * static_cast<std::int64_t>(format.head_size) * buckets_of(format, n);
}

std::unique_ptr<const Compressor> grid_codes(const GridFormat& format) {
  return std::make_unique<GridCodes>(format);
}

float round_up(double value) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (value >= kLargest) return kLargest;
  const auto nearest = static_cast<float>(value);
  return nearest < value ? std::nextafter(nearest, kLargest) : nearest;
}

}  // namespace linerate::compress
