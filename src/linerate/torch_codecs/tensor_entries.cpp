// Payloads of entries where tensors lie (compress/payload.hpp), without waiting for their
// numbers. Of each tensor there are slots for as many entries as it may send. An entry's place in
// its payload follows from its slot and from numbers of tensors. So only slots are as large as a
// bucket. Words of slots that are not used are zeros. They are added where others may be.
//
// Example: two tensors may send up to 3 and 2 entries, so there are slots 0 to 2 and 3 to 4. They
// do send 2 and 1. In a block without gaps, tensor 0's payload begins at word 1, after its size:
// the count, two values, two indices. Tensor 1's size is word 6, and its payload begins at word 7.
// Slot 1 is the second entry of tensor 0: its value goes to word 3 and its index to word 5. Slots 2
// and 4 are beyond their counts and add zeros.
#include <algorithm>
#include <memory>

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/bucket_arrays.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::EntryFormat;

constexpr std::int64_t kWordBytes = 4;
static_assert(compress::kEntryBytes == 2 * kWordBytes && compress::kCountBytes == kWordBytes &&
              compress::kPartSizeBytes == kWordBytes);

/// What is known of tensors before any value is: one number each.
struct Sizes {
  Sizes(const std::vector<std::int64_t>& of_tensors, const EntryFormat& format) : n(of_tensors) {
    const std::int64_t head = format.is_counted ? 1 : 0;
    for (const std::int64_t elements : n) {
      most.push_back(format.most_of(elements));
      slots.push_back(format.may_be_all ? elements : most.back());
      words.push_back(head + (format.may_be_all ? elements : 2 * most.back()));
      first_slots.push_back(all_slots);
      first_words.push_back(all_words);
      all_slots += slots.back();
      all_words += words.back();
    }
  }

  std::vector<std::int64_t> n, most;       // elements, most entries
  std::vector<std::int64_t> slots, words;  // of payloads: words at most
  std::vector<std::int64_t> first_slots, first_words;
  std::int64_t all_slots = 0, all_words = 0;
};

/// Slots for entries, tensor after tensor.
struct Slots {
  Slots(const Sizes& sizes, const at::TensorOptions& whole)
      : tensor(Padded(sizes.slots, 1).row_tensors(whole)),
        number(at::arange(sizes.all_slots, whole)) {}

  /// The slot's number and `more` of its tensor: [..][tensors] to [..][slots].
  at::Tensor from(const at::Tensor& more) const { return of(more).add_(number); }
  at::Tensor of(const at::Tensor& numbers) const { return numbers.index_select(-1, tensor); }
  at::Tensor are_beyond(const at::Tensor& ends) const { return number >= of(ends); }

  at::Tensor tensor, number;  // [slots], of the bucket
};

/// Where in x the entries of slots are.
at::Tensor places_of(const TensorOps::Chosen& chosen, const Slots& slots,
                     const at::Tensor& first_slots) {
  if (chosen.places.defined()) return chosen.places;
  const at::TensorOptions whole = chosen.of->whole();
  const at::Tensor before = chosen.counts.cumsum(0, slots.number.scalar_type()) - chosen.counts;
  return at::searchsorted(chosen.of->running_count(chosen.mask),
                          slots.from(before - first_slots + 1), whole.dtype() == at::kInt)
      .clamp_max_(chosen.of->rows.elements - 1);
}

/// Removes the entries that are sent from the residual.
void keep_rest(const TensorOps::Sending& tensors, const TensorOps::Chosen& chosen) {
  if (!tensors.keeps_residual()) return;
  const at::Tensor& x = chosen.of->x;
  if (chosen.places.defined())
    x.view({-1}).index_fill_(0, chosen.places, 0);
  else
    x.masked_fill_(chosen.mask, 0);
  if (chosen.is_all.defined()) x.masked_fill_(chosen.of->by_row(chosen.is_all), 0);
  at::_foreach_copy_(chosen.v, chosen.of->rows.parts_of(x.view({-1})));
}

/// Payloads of values and indices and nothing else: every slot is used.
void send_all_slots(const TensorOps::Sending& tensors, const Sizes& sizes, const at::Tensor& values,
                    const at::Tensor& indices) {
  std::vector<at::Tensor> into, from;
  for (std::size_t t = 0; t < sizes.n.size(); ++t) {
    const at::Tensor words = tensors.payloads[t].view(at::kInt);
    for (const bool is_value : {true, false}) {
      into.push_back(words.narrow(0, is_value ? 0 : sizes.slots[t], sizes.slots[t]));
      from.push_back((is_value ? values : indices).narrow(0, sizes.first_slots[t], sizes.slots[t]));
    }
  }
  at::_foreach_copy_(into, from);
}

/// Where payloads are written: their words, and where in it each begins.
struct Room {
  at::Tensor words;   // i32, zeros
  at::Tensor begins;  // [tensors]
};

/// Those of a block follow one another, each after its bytes. `lengths`: their words, [tensors].
Room room_in(TensorOps::Block& block, const at::Tensor& lengths) {
  const at::Tensor words = block.bytes.view(at::kInt);
  if (!block.end.defined()) words.zero_();
  at::Tensor ends = (lengths + 1).cumsum(0, lengths.scalar_type());
  if (block.end.defined()) ends = ends + block.end;
  block.end = ends.select(0, ends.size(0) - 1);
  const at::Tensor begins = ends - lengths;
  words.index_add_(0, begins - 1, (lengths * kWordBytes).to(at::kInt));
  return {words, begins};
}

/// Payloads that begin with their numbers of entries.
void send_counted(const TensorOps::Sending& tensors, const TensorOps::Chosen& chosen,
                  const Sizes& sizes, const Slots& slots, const at::Tensor& first_slots,
                  const at::Tensor& values, const at::Tensor& indices) {
  at::Tensor counts = chosen.counts, said = counts, lengths = counts * 2 + 1;
  const at::Tensor has_no_value = slots.are_beyond(first_slots + counts);
  at::Tensor has_no_index = has_no_value;
  if (chosen.is_all.defined()) {
    const at::Tensor n = listed(sizes.n, first_slots.options());
    counts = at::where(chosen.is_all, n, counts);
    said = said.masked_fill(chosen.is_all, -1);  // kAllValues
    lengths = at::where(chosen.is_all, n + 1, lengths);
    const at::Tensor in_all = slots.of(chosen.is_all);
    has_no_index = at::bitwise_or(has_no_value, in_all);
    has_no_value.bitwise_and_(in_all.logical_not());
  }
  const Room room = tensors.block ? room_in(*tensors.block, lengths)
                                  : Room{at::zeros({sizes.all_words}, values.options()),
                                         listed(sizes.first_words, first_slots.options())};
  const std::int64_t last = room.words.numel() - 1;
  const at::Tensor at = slots.from(room.begins + 1 - first_slots);
  values.masked_fill_(has_no_value, 0);
  room.words.index_add_(0, at.clamp_max_(last), values);
  indices.masked_fill_(has_no_index, 0);
  room.words.index_add_(0, at.add_(slots.of(counts)).clamp_max_(last), indices);
  room.words.index_add_(0, room.begins, said.to(at::kInt));
  if (tensors.block) return;
  at::_foreach_copy_(viewed(tensors.payloads, at::kInt), room.words.split_with_sizes(sizes.words));
  tensors.used.copy_(lengths * kWordBytes);
}

/// A bucket's payloads of some ranks.
struct ArrivedWords {
  at::Tensor words;   // i32: a rank's after the other's, which are as many
  at::Tensor begins;  // [ranks][tensors]: of payloads in `words`
  at::Tensor bytes;   // i32[ranks][tensors], as their senders said; undefined: not checked
};

/// Finds where the payloads of a block begin. A payload's place is known only when the sizes of
/// those before it are. So for every word of the block the place is computed where the next size
/// would be, if a size stood in this word. Then one look-up a payload is enough, for all ranks at
/// once. The sizes of a damaged block lead to some word inside it, and the checks that follow
/// refuse its entries.
///
/// Example: a block's words are 8, a, b, 4, c. Word 0 says 8 bytes, so two words follow, and the
/// next size is word 3. It says one word. The payloads begin at the words 1 and 4.
ArrivedWords words_of_blocks(TensorOps::Block& block, std::int64_t first, std::int64_t ranks,
                             std::size_t tensors, const at::TensorOptions& whole) {
  const at::Tensor words = block.bytes.view(at::kInt).narrow(0, first, ranks).view({-1});
  const std::int64_t all = words.numel();
  const at::Tensor next = at::bitwise_right_shift(words, 2)
                              .to(whole.dtype().toScalarType())
                              .add_(at::arange(1, all + 1, whole))
                              .clamp_(0, all - 1);
  const at::Tensor of_rank = at::arange(0, all, all / ranks, whole);
  std::vector<at::Tensor> heads = {of_rank};
  if (block.end.defined())
    heads.front() = (of_rank + block.end.narrow(0, first, ranks)).clamp_(0, all - 1);
  while (heads.size() < tensors + (block.goes_on ? 1 : 0))
    heads.push_back(next.index_select(0, heads.back()));
  if (block.goes_on) {
    block.end.narrow(0, first, ranks).copy_(heads.back() - of_rank);
    heads.pop_back();
  }
  const at::Tensor at = at::stack(heads, 1);
  return {words, (at + 1).clamp_max_(all - 1), words.index_select(0, at.view({-1})).view_as(at)};
}

/// Filled up with zeros to `bytes` bytes.
at::Tensor padded(const at::Tensor& payload, std::int64_t bytes) {
  if (payload.numel() == bytes) return payload;
  return at::constant_pad_nd(payload, {0, bytes - payload.numel()});
}

ArrivedWords words_of_payloads(const TensorOps::Arriving& tensors, std::int64_t first,
                               std::int64_t ranks, const Sizes& sizes,
                               const at::TensorOptions& whole) {
  std::vector<at::Tensor> payloads, used;
  for (std::int64_t r = first; r < first + ranks; ++r)
    for (std::size_t t = 0; t < tensors.arrived.size(); ++t)
      payloads.push_back(
          padded(tensors.arrived[t].payloads[to_index(r)], kWordBytes * sizes.words[t]));
  ArrivedWords arrived{at::cat(viewed(payloads, at::kInt)), {}, {}};
  const at::Tensor of_rank = at::arange(0, ranks * sizes.all_words, sizes.all_words, whole);
  arrived.begins = of_rank.unsqueeze(1) + listed(sizes.first_words, whole);
  if (!tensors.arrived.front().used.defined()) return arrived;
  for (const TensorArrived& one : tensors.arrived) used.push_back(one.used);
  arrived.bytes = at::stack(used, 1).narrow(0, first, ranks).to(at::kInt);
  return arrived;
}

/// Adds entries of some ranks at a time to means.
class EntrySums {
 public:
  EntrySums(const TensorOps::Arriving& tensors, const EntryFormat& format, const Sizes& sizes,
            const at::TensorOptions& whole)
      : tensors_(tensors), format_(format), slots_(sizes, whole) {
    const auto firsts = mapped(tensors.places, &TensorOps::Place::first);
    const auto numbers = listed({sizes.n, sizes.most, sizes.first_slots, firsts}, whole);
    n_ = numbers[0], most_ = numbers[1], first_slots_ = numbers[2];
    size_ = slots_.of(n_);
    first_ = slots_.of(numbers[3]);
    number_ = slots_.number - slots_.of(first_slots_);
  }

  /// Places differ within a payload, so that sums are those of one payload after the other.
  void add(const ArrivedWords& arrived) {
    at::Tensor counts = most_.expand_as(arrived.begins), begins = arrived.begins;
    if (format_.is_counted) {
      counts = read_counts(arrived);
      begins = begins + 1;
    }
    const std::int64_t last = arrived.words.numel() - 1;
    const auto words_at = [&](const at::Tensor& at) {
      return arrived.words.index_select(0, at.clamp_(0, last).view({-1})).view_as(at);
    };
    const at::Tensor is_entry = slots_.are_beyond(first_slots_ + counts).logical_not_();
    const at::Tensor at = slots_.from(begins - first_slots_);
    const at::Tensor values = floats_of(words_at(at));
    at::Tensor index = words_at(at.add_(slots_.of(counts)));
    if (number_.scalar_type() == at::kLong) index = unsigned_of(index);
    if (is_all_.defined()) at::where_out(index, slots_.of(is_all_), number_, index);
    const at::Tensor is_place = (index >= 0).bitwise_and_(index < size_).bitwise_and_(is_entry);
    tensors_.note_damage((is_place != is_entry).any());
    tensors_.note_damage(falls(index).bitwise_and_(is_entry.narrow(1, 1, index.size(1) - 1)).any());
    at::where_out(index, is_place, index, number_).add_(first_);
    values.masked_fill_(is_place.logical_not(), 0);
    for (std::int64_t r = 0; r < index.size(0); ++r)
      tensors_.means.index_add_(0, index.select(0, r), values.select(0, r));
  }

 private:
  at::Tensor read_counts(const ArrivedWords& arrived) {
    const at::Tensor said = arrived.words.index_select(0, arrived.begins.view({-1}))
                                .view_as(arrived.begins)
                                .to(n_.scalar_type());
    at::Tensor is_wrong = at::bitwise_or(said<0, said> most_);
    at::Tensor lengths = said * 2 + 1, counts = said.masked_fill(is_wrong, 0);
    if (format_.may_be_all) {
      is_all_ = said == -1;  // kAllValues
      is_wrong = at::bitwise_and(is_wrong, is_all_.logical_not());
      lengths = at::where(is_all_, n_ + 1, lengths);
      counts = at::where(is_all_, n_, counts);
    }
    if (arrived.bytes.defined())
      is_wrong = at::bitwise_or(is_wrong, arrived.bytes != (lengths * kWordBytes).to(at::kInt));
    tensors_.note_damage(is_wrong.any());
    return counts;
  }

  /// Whether an index is not above the one before it in its tensor.
  at::Tensor falls(const at::Tensor& index) const {
    const std::int64_t others = index.size(1) - 1;
    return (index.narrow(1, 1, others) <= index.narrow(1, 0, others))
        .bitwise_and_(number_.narrow(0, 1, others) > 0);
  }

  const TensorOps::Arriving& tensors_;
  const EntryFormat& format_;
  Slots slots_;
  at::Tensor n_, most_, first_slots_;  // [tensors]
  at::Tensor size_, first_, number_;   // [slots]: elements and first place of the tensor; in it
  at::Tensor is_all_;                  // of the ranks at hand
};

}  // namespace

void TensorOps::send_entries(const Sending& tensors, const Chosen& chosen,
                             const EntryFormat& format) {
  const Padded& rows = chosen.of->rows;
  const Sizes sizes(rows.sizes(), format);
  const at::TensorOptions whole = chosen.of->whole();
  const Slots slots(sizes, whole);
  const auto numbers = listed({sizes.first_slots, rows.firsts()}, whole);
  const at::Tensor &first_slots = numbers[0], &first_places = numbers[1];
  at::Tensor at = places_of(chosen, slots, first_slots);
  if (chosen.is_all.defined())
    at::where_out(at, slots.of(chosen.is_all), slots.from(first_places - first_slots), at);
  const at::Tensor values =  // -0.0 travels as +0.0
      bits_of(chosen.of->x.view({-1}).index_select(0, at).add_(0.0f));
  const at::Tensor indices = (at - slots.of(first_places)).to(at::kInt);
  at.reset();
  if (format.is_counted)
    send_counted(tensors, chosen, sizes, slots, first_slots, values, indices);
  else
    send_all_slots(tensors, sizes, values, indices);
  keep_rest(tensors, chosen);
}

void TensorOps::average_entries(const Arriving& tensors, const EntryFormat& format) {
  const Sizes sizes(mapped(tensors.places, &Place::elements), format);
  const auto check = format.is_counted ? check_bound : check_gathered;
  for (std::size_t t = 0; t < tensors.arrived.size(); ++t)
    check(tensors.arrived[t], sizes.words[t] * kWordBytes, format.method);
  const std::int64_t words =
      tensors.block ? tensors.block->bytes.size(1) / kWordBytes : sizes.all_words;
  const std::int64_t payloads =
      tensors.block ? tensors.block->bytes.size(0) : std::ssize(tensors.arrived.front().payloads);
  const std::int64_t most =
      std::clamp<std::int64_t>(tensors.together / std::max(words, sizes.all_slots), 1, payloads);
  const at::TensorOptions whole =
      tensors.means.options().dtype(type_of_places(std::max(most * words, tensors.means.numel())));
  if (tensors.block && tensors.block->goes_on && !tensors.block->end.defined())
    tensors.block->end = at::zeros({payloads}, whole);
  const Values means = parts_of(tensors.means, tensors.places);
  at::_foreach_zero_(means);
  EntrySums sums(tensors, format, sizes, whole);
  for (std::int64_t first = 0; first < payloads; first += most) {
    const std::int64_t ranks = std::min(most, payloads - first);
    sums.add(tensors.block ? words_of_blocks(*tensors.block, first, ranks, sizes.n.size(), whole)
                           : words_of_payloads(tensors, first, ranks, sizes, whole));
  }
  const int of_ranks = tensors.block ? tensors.of_ranks : tensors.arrived.front().ranks;
  if (of_ranks > 1) at::_foreach_mul_(means, 1.0f / static_cast<float>(of_ranks));
}

}  // namespace linerate::torch_codecs
