#include "linerate/torch_codecs/tensor_codec.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "linerate/compress/cast.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_codecs {

const at::Tensor& KeptTensor::now() const {
  if (lent_.defined()) now_ = {std::exchange(lent_, {}).to(now_.value.device()), {}};
  return now_.value;
}

/// Replaces the written numbers by those from before, in place, because the memory belongs to the
/// stream that wrote it. Arrays are replaced by one operator each. Then each part whose numbers lay
/// elsewhere before takes them from there.
void KeptTensor::undo_if(const std::vector<KeptTensor*>& kept, const at::Tensor& none) {
  std::map<const at::TensorImpl*, at::Tensor> before;  // by array
  std::vector<KeptTensor*> alone;
  for (KeptTensor* const one : kept) {
    if (!one->next_.value.defined()) continue;
    one->now();
    const auto& [next, now] = std::tie(one->next_, one->now_);
    const bool are_alike = next.array.defined() && now.array.defined() &&
                           next.array.sizes() == now.array.sizes() && next.offset() == now.offset();
    if (!are_alike) {
      alone.push_back(one);
      continue;
    }
    const auto [found, is_new] = before.emplace(next.array.unsafeGetTensorImpl(), now.array);
    if (is_new)
      at::where_out(one->next_.array, none, now.array, next.array);
    else if (!found->second.is_same(now.array))
      alone.push_back(one);
  }
  for (KeptTensor* const one : alone) {
    at::Tensor& next = one->next_.value;
    at::where_out(next, none, one->now().reshape(next.sizes()), next);
  }
}

void KeptTensor::keep() {
  if (!next_.value.defined()) return;
  now_ = std::exchange(next_, {});
  lent_.reset();
}

/// The copy is lent: load() may write to it. So now() takes the numbers from it again at its next
/// call.
std::span<std::byte> KeptTensor::bytes() {
  lent_ = now().cpu().contiguous();
  return {static_cast<std::byte*>(lent_.data_ptr()), lent_.nbytes()};
}

at::Tensor either(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return at::bitwise_or(a, b);
}

namespace {

at::Scalar word64(std::uint64_t bits) { return static_cast<std::int64_t>(bits); }
at::Scalar word32(std::uint32_t bits) { return std::int64_t{static_cast<std::int32_t>(bits)}; }

/// Calls a check of the host with payloads that have sizes and no memory.
template <class Check>
void check_sizes(const TensorArrived& arrived, Check check) {
  std::vector<std::span<const std::byte>> sizes;
  for (const at::Tensor& payload : arrived.payloads)
    sizes.emplace_back(static_cast<const std::byte*>(nullptr), to_index(payload.numel()));
  check(compress::Arrived{sizes, arrived.ranks});
}

}  // namespace

at::Tensor shifted_right(const at::Tensor& x, int by) {
  const int width = x.scalar_type() == at::kInt ? 32 : 64;
  const std::int64_t mask = (std::int64_t{1} << (width - by)) - 1;
  return at::bitwise_right_shift(x, by).bitwise_and_(mask);
}

at::Tensor bits_of(const at::Tensor& floats) { return floats.contiguous().view(at::kInt); }
at::Tensor floats_of(const at::Tensor& bits) { return bits.contiguous().view(at::kFloat); }
at::Tensor unsigned_of(const at::Tensor& words) {
  return at::bitwise_and(words.to(at::kLong), std::int64_t{0xffffffff});
}
at::Tensor magnitude_bits(const at::Tensor& floats) {
  return at::bitwise_and(bits_of(floats), word32(compress::kMagnitude));
}

at::Tensor bytes_of(const at::Tensor& x) { return x.contiguous().view({-1}).view(at::kByte); }

/// Each code is shifted to its place in the byte, and the codes of a byte are added. Their bits do
/// not overlap. Example with 2 bits: the codes 1, 2, 3 and 0 make 1 + 8 + 48 + 0 = 57.
at::Tensor pack_codes(const at::Tensor& codes, int bits) {
  const std::int64_t each = 8 / bits, n = codes.numel();
  if (each == 1) return codes;
  const at::Tensor all = n % each == 0 ? codes : at::constant_pad_nd(codes, {0, each - n % each});
  return at::bitwise_left_shift(all.view({-1, each}), at::arange(0, 8, bits, codes.options()))
      .sum(1, false, at::kByte);
}

at::Tensor unpack_codes(const at::Tensor& bytes, std::int64_t n, int bits) {
  if (bits == 8) return bytes;
  return at::bitwise_right_shift(bytes.unsqueeze(1), at::arange(0, 8, bits, bytes.options()))
      .bitwise_and_((1 << bits) - 1)
      .view({-1})
      .narrow(0, 0, n);
}

/// SplitMix64's finaliser (core/random.hpp) in wrapping i64.
at::Tensor random_bits(const at::Tensor& key, const at::Tensor& counter) {
  at::Tensor z = key + (counter + 1) * word64(0x9e3779b97f4a7c15ull);
  z = at::bitwise_xor(z, shifted_right(z, 30)) * word64(0xbf58476d1ce4e5b9ull);
  z = at::bitwise_xor(z, shifted_right(z, 27)) * word64(0x94d049bb133111ebull);
  return at::bitwise_xor(z, shifted_right(z, 31));
}
at::Tensor random_unit(const at::Tensor& key, const at::Tensor& counter) {
  return shifted_right(random_bits(key, counter), 11).to(at::kDouble) * 0x1p-53;
}

at::Tensor rounding_blocks(const at::Tensor& keys) {
  constexpr auto block = static_cast<std::int64_t>(compress::kRoundingBlock);
  const at::Tensor low = keys.to(at::kInt).unsqueeze(1),
                   high = shifted_right(keys, 32).to(at::kInt).unsqueeze(1);
  at::Tensor x = at::arange(block, low.options()) * word32(0x9e3779b9u) + low;
  x = at::bitwise_xor(x, shifted_right(x, 16)) * word32(0x85ebca6bu) + high;
  x = at::bitwise_xor(x, shifted_right(x, 13)) * word32(0xc2b2ae35u);
  return at::bitwise_xor(x, shifted_right(x, 16));
}

void check_gathered(const TensorArrived& arrived, std::int64_t bytes, std::string_view method) {
  check_sizes(arrived, [&](const compress::Arrived& sizes) {
    compress::check_gathered(sizes, to_index(bytes), method);
  });
}
void check_sum(const TensorArrived& arrived, std::int64_t bytes, std::string_view method) {
  check_sizes(arrived, [&](const compress::Arrived& sizes) {
    compress::check_sum(sizes, to_index(bytes), method);
  });
}
void check_bound(const TensorArrived& arrived, std::int64_t bytes, std::string_view method) {
  check_sizes(arrived, [&](const compress::Arrived& sizes) {
    compress::check_one_a_rank(sizes, method);
    for (std::size_t p = 0; p < sizes.payloads.size(); ++p)
      if (sizes.payloads[p].size() > to_index(bytes))
        compress::refuse_payload(method, p, "more bytes than its bound");
  });
}

/// Additions in the order of Sums16: steps of 16 one after the other, then lanes i and i + 8, and
/// so on.
at::Tensor sums_of_16_lanes(const at::Tensor& x) {
  constexpr std::int64_t kLanes = 16;
  const at::Tensor steps = x.view({x.size(0), x.size(1) / kLanes, kLanes});
  at::Tensor lanes = steps.select(1, 0).clone();
  for (std::int64_t i = 1; i < steps.size(1); ++i) lanes.add_(steps.select(1, i));
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    lanes = lanes.narrow(1, 0, width) + lanes.narrow(1, width, width);
  return lanes.view({-1});
}

}  // namespace linerate::torch_codecs
