// Payloads of entries where tensors lie (compress/sparse_payload.hpp), without waiting for their
// numbers: an element's place in its payload follows from how many are sent before it.
#include "linerate/compress/payload.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/bucket_magnitudes.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::EntryFormat;

constexpr std::int64_t kWordBytes = 4;
static_assert(compress::kEntryBytes == 2 * kWordBytes && compress::kCountBytes == kWordBytes);

std::vector<at::Tensor> words_of(const std::vector<at::Tensor>& payloads) {
  std::vector<at::Tensor> words;
  for (const at::Tensor& payload : payloads) words.push_back(payload.view(at::kInt));
  return words;
}

/// A bucket's payloads, a row a rank, and what each has room for. Entries of tensors follow one
/// another, in as many places as there may be.
struct ArrivedEntries {
  ArrivedEntries(const TensorOps::Arriving& tensors, const EntryFormat& format) {
    const at::TensorOptions whole = tensors.means.options().dtype(at::kLong);
    const std::int64_t head = format.is_counted ? 1 : 0;
    std::vector<std::int64_t> first_words, firsts;
    std::int64_t all = 0;
    for (std::size_t t = 0; t < tensors.places.size(); ++t) {
      const std::int64_t n = tensors.places[t].elements;
      sizes.push_back(n);
      most.push_back(format.most_of(n));
      heads.push_back(all);
      first_words.push_back(all + head);
      firsts.push_back(tensors.places[t].first);
      const std::int64_t bytes = format.may_be_all
                                     ? compress::kCountBytes + kWordBytes * n
                                     : head * kWordBytes + compress::kEntryBytes * most.back();
      check_gathered(tensors.arrived[t], bytes, format.method);
      all += bytes / kWordBytes;
    }
    const auto ranks = static_cast<std::int64_t>(tensors.arrived.front().payloads.size());
    std::vector<at::Tensor> payloads;
    for (std::int64_t r = 0; r < ranks; ++r)
      for (const TensorArrived& one : tensors.arrived)
        payloads.push_back(one.payloads[to_index(r)]);
    words = at::cat(words_of(payloads)).view({ranks, all});
    const Padded entries(most, 1);
    const at::Tensor of_tensor = entries.row_tensors(whole);
    const auto by_entry = [&](const std::vector<std::int64_t>& numbers) {
      return listed(numbers, whole).index_select(0, of_tensor);
    };
    number = entries.row_numbers(whole);
    value_at = number + by_entry(first_words);
    size = by_entry(sizes);
    first = by_entry(firsts);
    tensor = of_tensor;
  }

  std::vector<std::int64_t> sizes, most, heads;  // of tensors; heads: words before their entries
  at::Tensor words;                              // i32[ranks][words]
  at::Tensor tensor, number, value_at;           // i64[entries]: number within its tensor
  at::Tensor size, first;                        // of its tensor: elements, the first one
};

/// Entries of all ranks as far as they are some.
struct ReadEntries {
  at::Tensor values, at;  // f32, i64[ranks][entries]: places in the bucket; zeros for none
  at::Tensor wrong;       // bool: whether one is none that the method sends
};

/// `counts`: i64[ranks][tensors].
ReadEntries read_entries(const ArrivedEntries& arrived, const at::Tensor& counts) {
  const at::Tensor count = counts.index_select(1, arrived.tensor);
  const at::Tensor is_entry = arrived.number < count;
  const at::Tensor index_at = (arrived.value_at + count).clamp_max(arrived.words.size(1) - 1);
  const at::Tensor index = unsigned_of(arrived.words.gather(1, index_at));
  const at::Tensor is_place = at::bitwise_and(is_entry, index < arrived.size);
  const std::int64_t others = index.size(1) - 1;
  const at::Tensor follows =
      at::bitwise_and(is_entry.narrow(1, 1, others), arrived.number.narrow(0, 1, others) > 0);
  const at::Tensor falls = index.narrow(1, 1, others) <= index.narrow(1, 0, others);
  const at::Tensor value = floats_of(arrived.words.index_select(1, arrived.value_at));
  return {value.masked_fill(is_place.logical_not(), 0),
          arrived.first + at::minimum(index, arrived.size - 1),
          at::bitwise_or((is_place != is_entry).any(), at::bitwise_and(follows, falls).any())};
}

/// What a payload that has all values adds.
void add_all_values(const TensorOps::Arriving& tensors, std::size_t rank, const at::Tensor& is_all,
                    const std::vector<std::int64_t>& sizes) {
  std::vector<at::Tensor> values;
  for (const TensorArrived& arrived : tensors.arrived) {
    const at::Tensor& payload = arrived.payloads[rank];
    values.push_back(payload.narrow(0, kWordBytes, payload.numel() - kWordBytes).view(at::kFloat));
  }
  const at::Tensor all = at::cat(values).masked_fill(spread(is_all.logical_not(), sizes), 0);
  at::_foreach_add_(TensorOps::parts_of(tensors.means, tensors.places),
                    all.split_with_sizes(sizes));
}

}  // namespace

void TensorOps::send_entries(const Sending& tensors, const Chosen& chosen,
                             const EntryFormat& format) {
  const Magnitudes all(chosen.v, chosen.x);
  const at::TensorOptions whole = all.whole();
  const std::int64_t head = format.is_counted ? 1 : 0;
  std::vector<std::int64_t> words, heads, firsts;
  std::int64_t end = 0;
  for (const at::Tensor& payload : tensors.payloads) {
    words.push_back(payload.numel() / kWordBytes);
    heads.push_back(end);
    firsts.push_back(end + head);
    end += words.back();
  }
  at::Tensor mask = chosen.mask, counts = chosen.counts, has_index = mask, said = counts;
  at::Tensor a_piece = at::full_like(counts, compress::kEntryBytes);
  if (chosen.is_all.defined()) {
    const at::Tensor in_all = all.by_row(chosen.is_all);
    has_index = at::bitwise_and(mask, in_all.logical_not());
    mask = at::bitwise_or(mask, at::bitwise_and(in_all, all.rows.is_filled(whole)));
    said = counts.masked_fill(chosen.is_all, -1);  // kAllValues
    counts = at::where(chosen.is_all, listed(sizes_of(all.rows), whole), counts);
    a_piece.masked_fill_(chosen.is_all, kWordBytes);
  }
  // The last word is of none.
  const at::Tensor sent = at::zeros({end + 1}, whole.dtype(at::kInt));
  const at::Tensor none = at::full({}, end, whole);
  const auto put = [&](const at::Tensor& words_of_x, const at::Tensor& at, const at::Tensor& is) {
    sent.scatter_(0, at::where(is, at, none).view({-1}), words_of_x.view({-1}));
  };
  const at::Tensor value_at = all.places_in(mask, counts) + all.by_row(listed(firsts, whole));
  put(bits_of(all.x + 0.0f), value_at, mask);  // -0.0 travels as +0.0
  put(all.numbers().to(at::kInt), value_at + all.by_row(counts), has_index);
  if (format.is_counted) {
    sent.scatter_(0, listed(heads, whole), said.to(at::kInt));
    tensors.used.copy_(counts * a_piece + compress::kCountBytes);
  }
  at::_foreach_copy_(words_of(tensors.payloads), sent.narrow(0, 0, end).split_with_sizes(words));
  if (tensors.keeps_residual())
    at::_foreach_copy_(chosen.v, all.rows.parts_of(all.x.masked_fill(mask, 0).view({-1})));
}

/// Places differ within a payload, so that sums are those of one payload after the other.
TensorOps::Damage TensorOps::average_entries(const Arriving& tensors, const EntryFormat& format) {
  const ArrivedEntries arrived(tensors, format);
  const at::TensorOptions whole = tensors.means.options().dtype(at::kLong);
  const int ranks = tensors.arrived.front().ranks;
  const at::Tensor most = listed(arrived.most, whole);
  at::Tensor counts = most.expand({arrived.words.size(0), -1}), is_all;
  Damage damage;
  if (format.is_counted) {
    const at::Tensor said =
        unsigned_of(arrived.words.index_select(1, listed(arrived.heads, whole)));
    at::Tensor is_wrong = said > most, bytes = said * compress::kEntryBytes;
    counts = said.masked_fill(is_wrong, 0);
    if (format.may_be_all) {
      is_all = said == std::int64_t{compress::kAllValues};
      is_wrong = at::bitwise_and(is_wrong, is_all.logical_not());
      bytes = at::where(is_all, listed(arrived.sizes, whole) * kWordBytes, bytes);
    }
    damage = is_wrong.any();
    if (tensors.arrived.front().used.defined()) {
      std::vector<at::Tensor> used;
      for (const TensorArrived& one : tensors.arrived) used.push_back(one.used);
      damage = either(damage, (at::stack(used, 1) != bytes + compress::kCountBytes).any());
    }
  }
  const ReadEntries read = read_entries(arrived, counts);
  const Values means = parts_of(tensors.means, tensors.places);
  at::_foreach_zero_(means);
  for (std::int64_t r = 0; r < arrived.words.size(0); ++r) {
    tensors.means.scatter_add_(0, read.at.select(0, r), read.values.select(0, r));
    if (is_all.defined()) add_all_values(tensors, to_index(r), is_all.select(0, r), arrived.sizes);
  }
  if (ranks > 1) at::_foreach_mul_(means, 1.0f / static_cast<float>(ranks));
  return either(damage, read.wrong);
}

}  // namespace linerate::torch_codecs
