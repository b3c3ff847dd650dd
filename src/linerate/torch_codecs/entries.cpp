#include "linerate/torch_codecs/entries.hpp"

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

/// i32[payloads][words]
at::Tensor words_of(const TensorArrived& arrived) {
  return at::stack(arrived.payloads).view(at::kInt);
}

/// A row a payload: f32 values, i32 indices, and whether a place is that of an entry.
ReadEntries checked(const at::Tensor& values, const at::Tensor& indices, const at::Tensor& real,
                    std::int64_t n) {
  const at::Tensor index = at::where(real, unsigned_of(indices), n);
  const std::int64_t behind_first = index.size(1) - 1;
  const at::Tensor rises = index.narrow(1, 1, behind_first) > index.narrow(1, 0, behind_first);
  const at::Tensor falls =
      at::bitwise_and(real.narrow(1, 1, behind_first), rises.bitwise_not()).any(1);
  const at::Tensor beyond = at::bitwise_and(real, index >= n).any(1);
  return {values, index.clamp_max(n), at::bitwise_or(beyond, falls)};
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
  const at::Tensor nearest = threshold.to(at::kFloat);
  return bits_of(nearest) + (nearest.to(at::kDouble) < threshold);
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

ReadEntries read_entries(const TensorArrived& arrived, std::int64_t count, std::int64_t n) {
  const at::Tensor words = words_of(arrived);
  const at::Tensor real = at::ones({1, 1}, words.options().dtype(at::kBool));
  return checked(floats_of(words.narrow(1, 0, count)), words.narrow(1, count, count),
                 real.expand({words.size(0), count}), n);
}

ReadEntries read_counted_entries(const TensorArrived& arrived, std::int64_t most, std::int64_t n) {
  const at::Tensor words = words_of(arrived);
  const at::Tensor said = unsigned_of(words.select(1, 0));
  const at::Tensor is_count = said <= most;
  const at::Tensor count = at::where(is_count, said, 0).unsqueeze(1), j = positions(most, words);
  const at::Tensor at_index = (j + 1 + count).clamp_max(words.size(1) - 1);
  ReadEntries read =
      checked(floats_of(words.narrow(1, 1, most)), words.gather(1, at_index), j < count, n);
  read.wrong = at::bitwise_or(read.wrong, is_count.bitwise_not());
  if (arrived.used.defined())
    read.wrong = at::bitwise_or(
        read.wrong, arrived.used != said * compress::kEntryBytes + compress::kCountBytes);
  return read;
}

/// Places differ within a payload, so that sums are those of one payload after the other.
void average_entries(const TensorArrived& arrived, const ReadEntries& read, const at::Tensor& mean,
                     const std::function<void(std::size_t, const at::Tensor&)>& also) {
  const at::Tensor all = at::zeros({mean.numel() + 1}, mean.options());  // the last one: of none
  const at::Tensor sum = all.narrow(0, 0, mean.numel());
  for (std::size_t p = 0; p < arrived.payloads.size(); ++p) {
    const auto row = static_cast<std::int64_t>(p);
    all.scatter_add_(0, read.index.select(0, row), read.values.select(0, row));
    if (also) also(p, sum);
  }
  mean.copy_(arrived.ranks > 1 ? sum * (1.0f / static_cast<float>(arrived.ranks)) : sum);
}

at::Tensor average_counted_entries(const TensorArrived& arrived, std::int64_t bytes,
                                   std::int64_t most, std::string_view method,
                                   const at::Tensor& mean) {
  check_gathered(arrived, bytes, method);
  const ReadEntries read = read_counted_entries(arrived, most, mean.numel());
  average_entries(arrived, read, mean);
  return read.wrong.any();
}

}  // namespace linerate::torch_codecs
