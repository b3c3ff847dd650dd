#include "linerate/torch_codecs/entries.hpp"

#include <limits>

#include "linerate/compress/kernel/magnitude.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

constexpr std::int64_t kWordBytes = 4;
static_assert(compress::kEntryBytes == 2 * kWordBytes && compress::kCountBytes == kWordBytes);

at::Tensor positions(std::int64_t n, const at::Tensor& like) {
  return at::arange(n, like.options().dtype(at::kLong));
}
/// u32 in i32 memory.
at::Tensor unsigned_of(const at::Tensor& words) {
  return at::bitwise_and(words.to(at::kLong), std::int64_t{0xffffffff});
}

/// Entries whose places j < count are real.
ReadEntries scattered(const at::Tensor& values, const at::Tensor& indices, const at::Tensor& real,
                      std::int64_t n) {
  const at::Tensor index = at::where(real, unsigned_of(indices), n);
  const std::int64_t count = index.numel();
  const at::Tensor beyond = at::bitwise_and(real, index >= n).any();
  const at::Tensor rises = index.narrow(0, 1, count - 1) > index.narrow(0, 0, count - 1);
  const at::Tensor falls = at::bitwise_and(real.narrow(0, 1, count - 1), rises.bitwise_not()).any();
  at::Tensor all = at::zeros({n + 1}, values.options());
  all.scatter_(0, index.clamp_max(n), values);
  return {all.narrow(0, 0, n), at::bitwise_or(beyond, falls)};
}

}  // namespace

at::Tensor kth_largest(const at::Tensor& magnitudes, std::int64_t k) {
  return std::get<0>(at::topk(magnitudes, k)).select(0, k - 1);
}

at::Tensor largest_of(const at::Tensor& magnitudes, std::int64_t k) {
  const at::Tensor least = kth_largest(magnitudes, k);
  const at::Tensor above = magnitudes > least, ties = magnitudes == least;
  const at::Tensor wanted = k - above.sum();
  return at::bitwise_or(above, at::bitwise_and(ties, ties.cumsum(0) <= wanted));
}

at::Tensor largest_of(const at::Tensor& magnitudes, const at::Tensor& selected, std::int64_t k) {
  return at::bitwise_and(selected, largest_of(at::where(selected, magnitudes, -1), k));
}

at::Tensor bits_at_least(const at::Tensor& threshold) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const at::Tensor nearest = threshold.clamp_max(kLargest).to(at::kFloat);
  const at::Tensor is_below = nearest.to(at::kDouble) < threshold;
  const at::Tensor bits = magnitude_bits(nearest.view({1})).select(0, 0) + is_below.to(at::kInt);
  return at::where(threshold > kLargest, std::int64_t{compress::kNoMagnitude}, bits).to(at::kInt);
}

Picked pick(const at::Tensor& mask, std::int64_t capacity) {
  const std::int64_t n = mask.numel();
  const at::Tensor place = mask.cumsum(0) - 1;
  const at::Tensor slot = at::where(mask, place, capacity).clamp_max(capacity);
  at::Tensor index = at::full({capacity + 1}, n, place.options());
  index.scatter_(0, slot, positions(n, mask));
  return {index.narrow(0, 0, capacity), mask.sum()};
}

namespace {

/// Bits of what is sent: -0.0 as +0.0, 0 for no entry.
at::Tensor value_words(const at::Tensor& v, const Picked& picked) {
  const at::Tensor padded = at::constant_pad_nd(v, {0, 1});
  return bits_of(padded.index_select(0, picked.index) + 0.0f);
}

}  // namespace

at::Tensor entries_payload(const at::Tensor& v, const Picked& picked) {
  return at::cat({bytes_of(value_words(v, picked)), bytes_of(picked.index.to(at::kInt))});
}

TensorPayload counted_entries_payload(const at::Tensor& v, const Picked& picked,
                                      std::int64_t bytes) {
  const std::int64_t words = bytes / kWordBytes, capacity = picked.index.numel();
  const at::Tensor j = positions(capacity, v);
  const at::Tensor is_real = j < picked.count;
  at::Tensor all = at::zeros({words + 1}, v.options().dtype(at::kInt));  // the last one: of none
  all.narrow(0, 0, 1).copy_(picked.count);
  all.scatter_(0, at::where(is_real, j + 1, words), value_words(v, picked));
  all.scatter_(0, at::where(is_real, (j + 1 + picked.count).clamp_max(words), words),
               picked.index.to(at::kInt));
  return {bytes_of(all.narrow(0, 0, words)),
          picked.count * compress::kEntryBytes + compress::kCountBytes};
}

at::Tensor without(const at::Tensor& v, const at::Tensor& mask) {
  return at::where(mask, at::zeros({}, v.options()), v);
}

ReadEntries read_entries(const at::Tensor& payload, std::int64_t count, std::int64_t n) {
  const std::int64_t bytes = kWordBytes * count;
  const at::Tensor real = at::ones({count}, payload.options().dtype(at::kBool));
  return scattered(section(payload, 0, bytes, at::kFloat), section(payload, bytes, bytes, at::kInt),
                   real, n);
}

ReadEntries read_counted_entries(const at::Tensor& payload, std::int64_t most, std::int64_t n,
                                 const at::Tensor& used) {
  const at::Tensor words = payload.view(at::kInt);
  const at::Tensor said = unsigned_of(words.select(0, 0));
  at::Tensor wrong = said > most;
  if (used.defined())
    wrong = at::bitwise_or(wrong, used != said * compress::kEntryBytes + compress::kCountBytes);
  const at::Tensor count = said.clamp_max(most), j = positions(most, payload);
  const at::Tensor at_index = (j + 1 + count).clamp_max(words.numel() - 1);
  ReadEntries read =
      scattered(floats_of(words.narrow(0, 1, most)), words.index_select(0, at_index), j < count, n);
  read.wrong = at::bitwise_or(read.wrong, wrong);
  return read;
}

at::Tensor average_counted_entries(const TensorArrived& arrived, std::int64_t bytes,
                                   std::int64_t most, std::string_view method,
                                   const at::Tensor& mean) {
  check_gathered(arrived, bytes, method);
  at::Tensor wrong = at::zeros({}, mean.options().dtype(at::kBool));
  average(arrived, mean, [&](std::size_t p) {
    const ReadEntries read =
        read_counted_entries(arrived.payloads[p], most, mean.numel(), arrived.used_of(p));
    wrong = at::bitwise_or(wrong, read.wrong);
    return read.values;
  });
  return wrong;
}

}  // namespace linerate::torch_codecs
